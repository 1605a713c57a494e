//go:build ignore

// What docs/sdks.md shows.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"example.com/app/generated/flowtrail"
)

func main() {
	configuration := flowtrail.NewConfiguration()
	configuration.Servers[0].URL = os.Getenv("FLOWTRAIL_URL")
	configuration.AddDefaultHeader("X-Api-Key", os.Getenv("FLOWTRAIL_KEY"))
	client := flowtrail.NewAPIClient(configuration)
	ctx := context.Background()

	// Every entry with its page views, page by page.
	list := client.EntriesAPI.ListEntryPageViews(ctx, "demo").Limit(100)
	for {
		page, response, err := list.Execute()
		if err != nil {
			log.Fatal(err)
		}
		for _, entry := range page {
			fmt.Println(entry.EntryId, entry.CreatedAt.Year(), len(entry.PageViews))
		}
		cursor := response.Header.Get("Next-Cursor")
		if cursor == "" {
			break
		}
		list = list.Cursor(cursor)
	}

	// A custom event, recorded once however often this is sent.
	order := flowtrail.CustomEventInput{
		ModuleId:        "skin-quiz",
		Timestamp:       time.Date(2026, time.March, 1, 9, 41, 12, 345e6, time.UTC),
		CustomEventName: "order_placed",
		Identifiers:     []flowtrail.ContactIdentifier{{Key: "email", Value: `"amara.okafor@example.com"`}},
	}
	record := client.EventsAPI.RecordCustomEvent(ctx, "demo").IdempotencyKey("order-10042").CustomEventInput(order)
	recorded, response, err := record.Execute()
	if err == nil {
		fmt.Println(recorded.EntryId)
		return
	}
	var failure *flowtrail.GenericOpenAPIError
	if !errors.As(err, &failure) {
		log.Fatal(err)
	}
	switch body, _ := failure.Model().(flowtrail.ErrorBody); body.Error.Code {
	case "rate_limited":
		fmt.Println("wait", response.Header.Get("Retry-After"))
	default:
		fmt.Println(body.Error.Message, body.Error.Details)
	}
}
