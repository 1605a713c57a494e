//go:build ignore

// What docs/sdks.md shows.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"example.com/app/generated/flowtrail"
)

func main() {
	ctx := context.Background()
	sendKey := flowtrail.WithRequestEditorFn(func(_ context.Context, request *http.Request) error {
		request.Header.Set("X-Api-Key", os.Getenv("FLOWTRAIL_KEY"))
		return nil
	})
	client, err := flowtrail.NewClientWithResponses(os.Getenv("FLOWTRAIL_URL"), sendKey)
	if err != nil {
		log.Fatal(err)
	}

	// Every entry with its page views, page by page.
	limit := 100
	params := flowtrail.ListEntryPageViewsParams{Limit: &limit}
	for {
		page, err := client.ListEntryPageViewsWithResponse(ctx, "demo", &params)
		if err != nil {
			log.Fatal(err)
		}
		if page.JSON200 == nil {
			log.Fatalf("%s: %s", page.Status(), page.Body)
		}
		for _, entry := range *page.JSON200 {
			fmt.Println(entry.EntryId, entry.CreatedAt.Year(), len(entry.PageViews))
		}
		params.Cursor = page.Headers200.NextCursor
		if params.Cursor == nil {
			break
		}
	}

	// A custom event, recorded once however often this is sent.
	idempotencyKey := "order-10042"
	once := flowtrail.RecordCustomEventParams{IdempotencyKey: &idempotencyKey}
	recorded, err := client.RecordCustomEventWithResponse(ctx, "demo", &once, flowtrail.CustomEventInput{
		ModuleId:        "skin-quiz",
		Timestamp:       time.Date(2026, time.March, 1, 9, 41, 12, 345e6, time.UTC),
		CustomEventName: "order_placed",
		Identifiers:     []flowtrail.ContactIdentifier{{Key: "email", Value: `"amara.okafor@example.com"`}},
	})
	switch {
	case err != nil:
		log.Fatal(err)
	case recorded.JSON200 != nil:
		fmt.Println(recorded.JSON200.EntryId)
	case recorded.JSON429 != nil:
		fmt.Println("wait", recorded.Headers429.RetryAfter)
	default:
		log.Fatalf("%s: %s", recorded.Status(), recorded.Body)
	}
}
