// Command journey runs the journey of ../journey.md with the client of oapi-codegen.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.com/app/generated/flowtrail"
)

const (
	project = "demo"
	module  = "skin-quiz"
	// text has letters of several scripts, an emoji and quotes: what a client may garble.
	text = `Ärger, "À la carte", 日本 🎉`
)

var ctx = context.Background()

func main() {
	url := os.Getenv("FLOWTRAIL_URL")
	client := connect(url, "FLOWTRAIL_KEY")

	step("list-modules", func() {
		answer := must(client.ListModulesWithResponse(ctx, project))
		found := false
		for _, summary := range body(answer, answer.JSON200) {
			found = found || summary.ModuleId == module
		}
		expect(found, "%s is not listed", module)
	})

	var etag string
	step("get-module", func() {
		answer := must(client.GetModuleWithResponse(ctx, project, module, nil))
		definition := body(answer, answer.JSON200).JsonStringProd
		expect(json.Valid([]byte(definition)), "json_string_prod is %q", definition)
		etag = answer.Headers200.ETag
	})

	var version flowtrail.ModuleVersionSummary
	step("list-versions", func() {
		answer := must(client.ListModuleVersionsWithResponse(ctx, project, module, nil))
		versions := body(answer, answer.JSON200)
		expect(len(versions) > 0, "there are none")
		version = versions[0]
	})

	step("get-version", func() {
		answer := must(client.GetModuleVersionWithResponse(ctx, project, module, version.VersionNumber, nil))
		got := body(answer, answer.JSON200)
		expect(got.SavedAt.Equal(version.SavedAt), "saved at %s, listed with %s", got.SavedAt, version.SavedAt)
		expect(json.Valid([]byte(got.JsonString)), "json_string is %q", got.JsonString)
	})

	var first flowtrail.EntryPageViews
	step("page-through", func() {
		byLink := map[string]bool{}
		params := flowtrail.ListEntryPageViewsParams{Limit: ptr(50)}
		for target := ptr(""); target != nil; {
			answer := must(client.ListEntryPageViewsWithResponse(ctx, project, &params, follow(*target)))
			page := body(answer, answer.JSON200)
			if len(byLink) == 0 {
				first = page[0]
			}
			collect(byLink, page)
			target = answer.Headers200.Link
		}
		expect(len(byLink) >= 200, "only %d entries", len(byLink))

		byCursor := map[string]bool{}
		params = flowtrail.ListEntryPageViewsParams{Limit: ptr(30), Direction: ptr(flowtrail.ASC)}
		for more := true; more; more = params.Cursor != nil {
			answer := must(client.ListEntryPageViewsWithResponse(ctx, project, &params))
			collect(byCursor, body(answer, answer.JSON200))
			params.Cursor = answer.Headers200.NextCursor
		}
		expect(maps.Equal(byLink, byCursor), "%d entries by Link, %d by Next-Cursor", len(byLink), len(byCursor))

		params = flowtrail.ListEntryPageViewsParams{UpdatedAfter: &first.UpdatedAt}
		answer := must(client.ListEntryPageViewsWithResponse(ctx, project, &params))
		latest := body(answer, answer.JSON200)
		expect(len(latest) > 0, "none updated at or after %s", first.UpdatedAt)
		for _, entry := range latest {
			expect(entry.UpdatedAt.Equal(first.UpdatedAt), "updated at %s, the latest at %s", entry.UpdatedAt, first.UpdatedAt)
		}
	})

	step("get-entry", func() {
		answer := must(client.GetEntryWithResponse(ctx, project, first.EntryId, nil))
		var created time.Time = body(answer, answer.JSON200).CreatedAt
		expect(created.Equal(first.CreatedAt), "created at %s, listed with %s", created, first.CreatedAt)
	})

	step("list-events", func() {
		viewed := 0
		for _, event := range eventsOf(client, first.EntryId) {
			if event.PageIndex != nil {
				viewed++
			}
		}
		expect(viewed == len(first.PageViews), "%d page views among the events, %d listed", viewed, len(first.PageViews))
	})

	key := flowtrail.RecordCustomEventParams{IdempotencyKey: ptr(rand.Text())}
	event := eventOf(identifier("email"), identifier(text))
	var recorded flowtrail.CustomEventResult
	step("record", func() {
		answer := must(client.RecordCustomEventWithResponse(ctx, project, &key, event))
		recorded = body(answer, answer.JSON200)
		expect(recorded.ContactId != "" && recorded.EntryId != "", "the result is %+v", recorded)
		expect(answer.Headers200.IdempotentReplayed == nil, "replayed at the first time")
		events := eventsOf(client, recorded.EntryId)
		expect(len(events) == 1, "%d events", len(events))
		expect(*events[0].CustomEventName == text, "the name is %s", *events[0].CustomEventName)
		expect(*events[0].CustomEventProps == *event.CustomEventProps, "the props are %s", *events[0].CustomEventProps)
		expect(events[0].Timestamp.Equal(event.Timestamp), "at %s, sent %s", events[0].Timestamp, event.Timestamp)

		answer = must(client.RecordCustomEventWithResponse(ctx, project, nil, eventOf(event.Identifiers[1])))
		again := body(answer, answer.JSON200)
		expect(again.ContactId == recorded.ContactId, "another contact with %s", event.Identifiers[1].Value)
	})

	step("replay", func() {
		answer := must(client.RecordCustomEventWithResponse(ctx, project, &key, event))
		again := body(answer, answer.JSON200)
		expect(reflect.DeepEqual(again, recorded), "%+v, before %+v", again, recorded)
		replayed := answer.Headers200.IdempotentReplayed
		expect(replayed != nil && *replayed == "true", "Idempotent-Replayed is not true")
	})

	step("record-batch", func() {
		item := func(moduleID string) flowtrail.CustomEventBatchItem {
			return flowtrail.CustomEventBatchItem{
				ModuleId:        moduleID,
				Timestamp:       event.Timestamp,
				CustomEventName: text,
				Identifiers:     event.Identifiers,
				IdempotencyKey:  ptr(rand.Text()),
			}
		}
		batch := flowtrail.CustomEventBatch{Events: []flowtrail.CustomEventBatchItem{item(module), item("hair-quiz")}}
		record := func() []flowtrail.CustomEventBatchItemResult {
			answer := must(client.RecordCustomEventsWithResponse(ctx, project, batch))
			results := body(answer, answer.JSON200).Results
			expect(len(results) == 2, "%d results", len(results))
			return results
		}
		results := record()
		accepted, rejected := results[0], results[1]
		expect(accepted.Status == 200 && accepted.Event != nil, "the first result is %+v", accepted)
		expect(accepted.Event.CustomEventName == text, "the name is %s", accepted.Event.CustomEventName)
		expect(accepted.Event.Timestamp.Equal(event.Timestamp), "at %s, sent %s", accepted.Event.Timestamp, event.Timestamp)
		expect(accepted.Replayed != nil && !*accepted.Replayed, "replayed at the first time")
		expect(rejected.Status == 404 && rejected.Error != nil, "the second result is %+v", rejected)
		expect(rejected.Error.Code == "module_does_not_exist", "the code is %s", rejected.Error.Code)
		expect(rejected.ProjectId != nil && *rejected.ProjectId == project, "the error does not name the project")
		expect(rejected.ModuleId != nil && *rejected.ModuleId == "hair-quiz", "moduleId is not hair-quiz")
		repeated := record()[0]
		expect(repeated.Event != nil && repeated.Event.EventId == accepted.Event.EventId, "another event: %+v", repeated)
		expect(repeated.Replayed != nil && *repeated.Replayed, "not replayed")
	})

	step("follow-feed", func() {
		list := func(params flowtrail.ListProjectEventsParams) *flowtrail.ListProjectEventsResponse {
			return must(client.ListProjectEventsWithResponse(ctx, project, &params))
		}
		answer := list(flowtrail.ListProjectEventsParams{Direction: ptr(flowtrail.DESC), Limit: ptr(1)})
		before := body(answer, answer.JSON200)[0].Position
		recording := must(client.RecordCustomEventWithResponse(ctx, project, nil, eventOf(identifier("email"))))
		fresh := body(recording, recording.JSON200)

		answer = list(flowtrail.ListProjectEventsParams{
			Direction: ptr(flowtrail.ASC), After: &before, Wait: ptr(5), Limit: ptr(10),
		})
		page := body(answer, answer.JSON200)
		expect(len(page) == 1 && page[0].EventId == fresh.EventId, "%+v after %d, recorded %s", page, before, fresh.EventId)
		expect(page[0].Position > before, "the position is %d, before %d", page[0].Position, before)
		expect(!page[0].RecordedAt.IsZero(), "no recorded_at")
		expect(answer.Headers200.Link == nil, "there is a Link")
		expect(answer.Headers200.NextCursor != nil, "no Next-Cursor")

		answer = list(flowtrail.ListProjectEventsParams{
			Direction: ptr(flowtrail.ASC), Cursor: answer.Headers200.NextCursor,
		})
		rest := body(answer, answer.JSON200)
		expect(len(rest) == 0, "%+v after the latest", rest)
	})

	step("list-erasures", func() {
		list := func(params flowtrail.ListErasuresParams) *flowtrail.ListErasuresResponse {
			return must(client.ListErasuresWithResponse(ctx, project, &params))
		}
		answer := list(flowtrail.ListErasuresParams{Direction: ptr(flowtrail.DESC), Limit: ptr(1)})
		newest := body(answer, answer.JSON200)[0]
		ids := append(newest.EntryIds, newest.ContactId)
		expect(len(ids) == 3 && !slices.Contains(ids, ""), "the newest is %+v", newest)
		expect(!newest.ErasedAt.IsZero(), "no erased_at")

		answer = list(flowtrail.ListErasuresParams{Direction: ptr(flowtrail.ASC), After: &newest.Position})
		later := body(answer, answer.JSON200)
		expect(len(later) == 0, "%+v after the newest", later)
		expect(answer.Headers200.Link == nil, "there is a Link")
		expect(answer.Headers200.NextCursor != nil, "no Next-Cursor")
	})

	step("conditional", func() {
		answer := must(client.GetModuleWithResponse(ctx, project, module, &flowtrail.GetModuleParams{IfNoneMatch: &etag}))
		expect(answer.StatusCode() == http.StatusNotModified, "answered %s", answer.Status())
		expect(answer.Headers304.ETag == etag, "ETag %s, before %s", answer.Headers304.ETag, etag)
	})

	step("error-400", func() {
		params := flowtrail.ListEntryEventsParams{Cursor: ptr("AWJ4")}
		answer := must(client.ListEntryEventsWithResponse(ctx, project, first.EntryId, &params))
		details := fault(answer, answer.JSON400, "invalid_request").Error.Details
		expect(details != nil && (*details)[0].Pointer == "/query/cursor", "the details are %+v", details)
	})

	step("error-401", func() {
		answer := must(connect(url, "FLOWTRAIL_OTHER_KEY").ListModulesWithResponse(ctx, project))
		fault(answer, answer.JSON401, "unauthorized")
		expect(answer.Headers401.WWWAuthenticate != "", "no WWW-Authenticate")
	})

	step("error-403", func() {
		reader := connect(url, "FLOWTRAIL_READ_KEY")
		answer := must(reader.RecordCustomEventWithResponse(ctx, project, nil, event))
		fault(answer, answer.JSON403, "insufficient_scope")
	})

	step("error-404-module", func() {
		answer := must(client.GetModuleWithResponse(ctx, project, "hair-quiz", nil))
		id := fault(answer, answer.JSON404, "module_does_not_exist").ModuleId
		expect(id != nil && *id == "hair-quiz", "moduleId is not hair-quiz")
	})

	step("error-404-version", func() {
		answer := must(client.GetModuleVersionWithResponse(ctx, project, module, 99, nil))
		number := fault(answer, answer.JSON404, "module_version_does_not_exist").VersionNumber
		expect(number != nil && *number == 99, "versionNumber is not 99")
	})

	step("error-404-entry", func() {
		answer := must(client.GetEntryWithResponse(ctx, project, "nobody", nil))
		id := fault(answer, answer.JSON404, "entry_not_found").EntryId
		expect(id != nil && *id == "nobody", "entryId is not nobody")
	})

	step("error-409", func() {
		mine, yours := identifier("crm_id"), identifier("phone")
		for _, identifier := range []flowtrail.ContactIdentifier{mine, yours} {
			answer := must(client.RecordCustomEventWithResponse(ctx, project, nil, eventOf(identifier)))
			body(answer, answer.JSON200)
		}
		answer := must(client.RecordCustomEventWithResponse(ctx, project, nil, eventOf(mine, yours)))
		fault(answer, answer.JSON409, "identifier_conflict")
	})

	step("error-413", func() {
		large := event
		large.CustomEventProps = ptr(`{"text":"` + strings.Repeat("x", 256<<10) + `"}`)
		answer := must(client.RecordCustomEventWithResponse(ctx, project, nil, large))
		fault(answer, answer.JSON413, "payload_too_large")
	})

	step("error-422", func() {
		answer := must(client.RecordCustomEventWithResponse(ctx, project, &key, eventOf(identifier("email"))))
		fault(answer, answer.JSON422, "idempotency_key_reused")
	})

	step("error-429", func() {
		limited := connect(os.Getenv("FLOWTRAIL_LIMITED_URL"), "FLOWTRAIL_KEY")
		must(limited.ListModulesWithResponse(ctx, project))
		answer := must(limited.ListModulesWithResponse(ctx, project))
		fault(answer, answer.JSON429, "rate_limited")
		expect(answer.Headers429.RetryAfter >= 1, "Retry-After is %d", answer.Headers429.RetryAfter)
	})
}

// connect returns a client that sends the key in the environment variable keyName.
func connect(url, keyName string) *flowtrail.ClientWithResponses {
	key := os.Getenv(keyName)
	return must(flowtrail.NewClientWithResponses(url, flowtrail.WithRequestEditorFn(
		func(_ context.Context, request *http.Request) error {
			request.Header.Set("X-Api-Key", key)
			return nil
		})))
}

var nextLink = regexp.MustCompile(`^<([^>]+)>; rel="next"$`)

// follow requests the URL of a Link header instead of that of the parameters; "" is no link.
func follow(link string) flowtrail.RequestEditorFn {
	return func(_ context.Context, request *http.Request) error {
		if link == "" {
			return nil
		}
		target := nextLink.FindStringSubmatch(link)
		expect(target != nil, "Link is %s", link)
		request.URL = must(request.URL.Parse(target[1]))
		return nil
	}
}

// collect adds a page's entries to those seen, and fails on duplicates.
func collect(seen map[string]bool, page []flowtrail.EntryPageViews) {
	for _, entry := range page {
		expect(!seen[entry.EntryId], "entry %s comes twice", entry.EntryId)
		seen[entry.EntryId] = true
	}
}

// eventsOf reads all events of an entry, two at a time.
func eventsOf(client *flowtrail.ClientWithResponses, entryID string) (events []flowtrail.EntryEvent) {
	params := flowtrail.ListEntryEventsParams{Limit: ptr(2)}
	for more := true; more; more = params.Cursor != nil {
		answer := must(client.ListEntryEventsWithResponse(ctx, project, entryID, &params))
		events = append(events, body(answer, answer.JSON200)...)
		params.Cursor = answer.Headers200.NextCursor
	}
	return events
}

// identifier returns an identifier that no other contact has.
func identifier(key string) flowtrail.ContactIdentifier {
	return flowtrail.ContactIdentifier{Key: key, Value: jsonOf(text + rand.Text())}
}

// eventOf is a current custom event of the contact with these identifiers.
func eventOf(identifiers ...flowtrail.ContactIdentifier) flowtrail.CustomEventInput {
	return flowtrail.CustomEventInput{
		ModuleId:         module,
		Timestamp:        time.Now().Truncate(time.Millisecond),
		CustomEventName:  text,
		CustomEventProps: ptr(jsonOf(map[string]string{"said": text})),
		Identifiers:      identifiers,
	}
}

func jsonOf(value any) string { return string(must(json.Marshal(value))) }

// An answer is the response to any call of the generated client.
type answer interface {
	Status() string
	GetBody() []byte
}

// body is the typed body of a response, which must have the status.
func body[T any](answer answer, typed *T) T {
	expect(typed != nil, "answered %s: %s", answer.Status(), answer.GetBody())
	return *typed
}

// fault is the typed error of a response, which must have the code and the project.
func fault(answer answer, typed *flowtrail.ErrorBody, code string) flowtrail.ErrorBody {
	apiError := body(answer, typed)
	expect(apiError.Error.Code == code, "the code is %s", apiError.Error.Code)
	expect(apiError.ProjectId != nil && *apiError.ProjectId == project, "the error does not name the project")
	return apiError
}

func ptr[T any](value T) *T { return &value }

func must[T any](value T, err error) T {
	expect(err == nil, "%v", err)
	return value
}

var current string

func step(name string, take func()) {
	current = name
	take()
	fmt.Println("ok", name)
}

// expect ends the journey if the condition does not hold.
func expect(holds bool, complaint string, args ...any) {
	if !holds {
		fmt.Fprintf(os.Stderr, "failed %s: %s\n", current, fmt.Sprintf(complaint, args...))
		os.Exit(1)
	}
}
