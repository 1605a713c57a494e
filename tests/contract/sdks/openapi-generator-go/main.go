// Command journey runs the journey of ../journey.md with the client of openapi-generator (-g go).
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
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
	client := connect("FLOWTRAIL_KEY", "FLOWTRAIL_URL")
	modules, entries, events := client.ModulesAPI, client.EntriesAPI, client.EventsAPI

	step("list-modules", func() {
		listed, _ := must(modules.ListModules(ctx, project).Execute())
		found := slices.ContainsFunc(listed, func(summary flowtrail.FlowModuleSummary) bool {
			return summary.ModuleId == module
		})
		expect(found, "%s is not listed", module)
	})

	var etag string
	step("get-module", func() {
		got, response := must(modules.GetModule(ctx, project, module).Execute())
		expect(json.Valid([]byte(got.JsonStringProd)), "json_string_prod is %q", got.JsonStringProd)
		etag = response.Header.Get("ETag")

		later := `{"module_id":"m","title":"t","group_id":"g","project_id":"p","json_string_prod":"{}","new":1}`
		err := json.Unmarshal([]byte(later), got)
		expect(err == nil, "a field of a later version: %v", err)
	})

	var newest flowtrail.ModuleVersionSummary
	step("list-versions", func() {
		versions, _ := must(modules.ListModuleVersions(ctx, project, module).Execute())
		expect(len(versions) > 0, "there are none")
		newest = versions[0]
	})

	step("get-version", func() {
		got, _ := must(modules.GetModuleVersion(ctx, project, module, newest.VersionNumber).Execute())
		expect(got.SavedAt.Equal(newest.SavedAt), "saved at %s, listed with %s", got.SavedAt, newest.SavedAt)
		expect(json.Valid([]byte(got.JsonString)), "json_string is %q", got.JsonString)
	})

	var first flowtrail.EntryPageViews
	step("page-through", func() {
		list := entries.ListEntryPageViews(ctx, project)
		byLink := walk(list.Limit(50), nextByLink)
		byCursor := walk(list.Limit(30).Direction(flowtrail.ASC), nextByCursor)
		ids := idsOf(byLink)
		expect(len(ids) >= 200, "only %d entries", len(ids))
		expect(len(ids) == len(byLink), "%d rows, but %d entries", len(byLink), len(ids))
		expect(maps.Equal(ids, idsOf(byCursor)), "%d entries by Link, %d by Next-Cursor", len(byLink), len(byCursor))
		first = byCursor[0]

		middle := byCursor[150].UpdatedAt
		later, _ := must(list.Limit(1000).Direction(flowtrail.ASC).UpdatedAfter(middle).Execute())
		expected := slices.DeleteFunc(byCursor, func(entry flowtrail.EntryPageViews) bool {
			return entry.UpdatedAt.Before(middle)
		})
		expect(reflect.DeepEqual(later, expected), "%d entries updated after %s", len(later), middle)
	})

	step("get-entry", func() {
		got, _ := must(entries.GetEntry(ctx, project, first.EntryId).Execute())
		var created time.Time = got.CreatedAt
		expect(created.Equal(first.CreatedAt), "created at %s, listed with %s", created, first.CreatedAt)
	})

	eventsOf := func(entryID string) []flowtrail.EntryEvent {
		return walk(entries.ListEntryEvents(ctx, project, entryID).Limit(2), nextByCursor)
	}

	step("list-events", func() {
		viewed := slices.DeleteFunc(eventsOf(first.EntryId), func(event flowtrail.EntryEvent) bool {
			return event.PageIndex == nil
		})
		expect(len(viewed) == len(first.PageViews), "%d page views among the events, %d listed", len(viewed), len(first.PageViews))
	})

	taken := eventOf(identifier("email"), identifier(text))
	record := func(event flowtrail.CustomEventInput) flowtrail.ApiRecordCustomEventRequest {
		return events.RecordCustomEvent(ctx, project).CustomEventInput(event)
	}
	key := rand.Text()
	var recorded *flowtrail.CustomEventResult
	step("record", func() {
		var response *http.Response
		recorded, response = must(record(taken).IdempotencyKey(key).Execute())
		expect(recorded.ContactId != "" && recorded.EntryId != "", "the result is %+v", recorded)
		expect(response.Header.Get("Idempotent-Replayed") == "", "replayed at the first time")

		found := eventsOf(recorded.EntryId)
		expect(len(found) == 1, "%d events", len(found))
		expect(found[0].GetCustomEventName() == text, "the name is %s", found[0].GetCustomEventName())
		expect(found[0].GetCustomEventProps() == *taken.CustomEventProps, "the props are %s", found[0].GetCustomEventProps())
		expect(found[0].Timestamp.Equal(taken.Timestamp), "at %s, sent %s", found[0].Timestamp, taken.Timestamp)

		again, _ := must(record(eventOf(taken.Identifiers[1])).Execute())
		expect(again.ContactId == recorded.ContactId, "another contact with %s", taken.Identifiers[1].Value)
	})

	step("replay", func() {
		again, response := must(record(taken).IdempotencyKey(key).Execute())
		expect(reflect.DeepEqual(again, recorded), "%+v, before %+v", again, recorded)
		expect(response.Header.Get("Idempotent-Replayed") == "true", "Idempotent-Replayed is not true")
	})

	step("record-batch", func() {
		item := func(moduleID string) flowtrail.CustomEventBatchItem {
			key := rand.Text()
			return flowtrail.CustomEventBatchItem{
				ModuleId:        moduleID,
				Timestamp:       taken.Timestamp,
				CustomEventName: text,
				Identifiers:     taken.Identifiers,
				IdempotencyKey:  &key,
			}
		}
		batch := flowtrail.CustomEventBatch{Events: []flowtrail.CustomEventBatchItem{item(module), item("hair-quiz")}}
		record := func() []flowtrail.CustomEventBatchItemResult {
			answer, _ := must(events.RecordCustomEvents(ctx, project).CustomEventBatch(batch).Execute())
			expect(len(answer.Results) == 2, "%d results", len(answer.Results))
			return answer.Results
		}
		results := record()
		accepted, rejected := results[0], results[1]
		expect(accepted.Status == 200 && accepted.Event != nil, "the first result is %+v", accepted)
		expect(accepted.Event.CustomEventName == text, "the name is %s", accepted.Event.CustomEventName)
		expect(accepted.Event.Timestamp.Equal(taken.Timestamp), "at %s, sent %s", accepted.Event.Timestamp, taken.Timestamp)
		expect(accepted.HasReplayed() && !accepted.GetReplayed(), "replayed at the first time")
		expect(rejected.Status == 404 && rejected.Error != nil, "the second result is %+v", rejected)
		expect(rejected.Error.Code == "module_does_not_exist", "the code is %s", rejected.Error.Code)
		expect(rejected.GetProjectId() == project, "projectId is %q", rejected.GetProjectId())
		expect(rejected.GetModuleId() == "hair-quiz", "moduleId is %q", rejected.GetModuleId())
		repeated := record()[0]
		expect(reflect.DeepEqual(repeated.Event, accepted.Event), "%+v, before %+v", repeated.Event, accepted.Event)
		expect(repeated.GetReplayed(), "not replayed")
	})

	step("follow-feed", func() {
		feed := events.ListProjectEvents(ctx, project)
		before, _ := must(feed.Direction(flowtrail.DESC).Limit(1).Execute())
		fresh, _ := must(record(eventOf(identifier("email"))).Execute())

		feed = feed.Direction(flowtrail.ASC)
		page, response := must(feed.After(before[0].Position).Wait(5).Limit(10).Execute())
		expect(len(page) == 1 && page[0].EventId == fresh.EventId, "%+v, recorded %s", page, fresh.EventId)
		expect(page[0].Position > before[0].Position, "the position is %d, before %d", page[0].Position, before[0].Position)
		expect(!page[0].RecordedAt.IsZero(), "no recorded_at")
		expect(response.Header.Get("Link") == "", "Link is %s", response.Header.Get("Link"))
		cursor := nextByCursor(response)
		expect(cursor != "", "no Next-Cursor")

		rest, _ := must(feed.Cursor(cursor).Execute())
		expect(len(rest) == 0, "%+v after the latest", rest)
	})

	step("list-erasures", func() {
		list := client.ErasuresAPI.ListErasures(ctx, project)
		newest, _ := must(list.Direction(flowtrail.DESC).Limit(1).Execute())
		ids := append(newest[0].EntryIds, newest[0].ContactId)
		expect(len(ids) == 3 && !slices.Contains(ids, ""), "the newest is %+v", newest)
		expect(!newest[0].ErasedAt.IsZero(), "no erased_at")

		later, response := must(list.Direction(flowtrail.ASC).After(newest[0].Position).Execute())
		expect(len(later) == 0, "%+v after the newest", later)
		expect(response.Header.Get("Link") == "", "Link is %s", response.Header.Get("Link"))
		expect(nextByCursor(response) != "", "no Next-Cursor")
	})

	step("conditional", func() {
		unchanged := refused(modules.GetModule(ctx, project, module).IfNoneMatch(etag).Execute())
		expect(unchanged.StatusCode == http.StatusNotModified, "answered %s", unchanged.Status)
		expect(unchanged.Header.Get("ETag") == etag, "ETag %s, before %s", unchanged.Header.Get("ETag"), etag)
	})

	step("error-400", func() {
		invalid := refused(entries.ListEntryEvents(ctx, project, first.EntryId).Cursor("AWJ4").Execute())
		details := invalid.fault(400, "invalid_request").Error.Details
		expect(len(details) == 1 && details[0].Pointer == "/query/cursor", "the details are %+v", details)
	})

	step("error-401", func() {
		stranger := connect("FLOWTRAIL_OTHER_KEY", "FLOWTRAIL_URL")
		refused(stranger.ModulesAPI.ListModules(ctx, project).Execute()).fault(401, "unauthorized")
	})

	step("error-403", func() {
		reader := connect("FLOWTRAIL_READ_KEY", "FLOWTRAIL_URL")
		recording := reader.EventsAPI.RecordCustomEvent(ctx, project).CustomEventInput(taken)
		refused(recording.Execute()).fault(403, "insufficient_scope")
	})

	step("error-404-module", func() {
		missing := refused(modules.GetModule(ctx, project, "hair-quiz").Execute()).fault(404, "module_does_not_exist")
		expect(missing.GetModuleId() == "hair-quiz", "moduleId is %q", missing.GetModuleId())
	})

	step("error-404-version", func() {
		getting := modules.GetModuleVersion(ctx, project, module, 99)
		missing := refused(getting.Execute()).fault(404, "module_version_does_not_exist")
		expect(missing.GetVersionNumber() == 99, "versionNumber is %d", missing.GetVersionNumber())
	})

	step("error-404-entry", func() {
		missing := refused(entries.GetEntry(ctx, project, "nobody").Execute()).fault(404, "entry_not_found")
		expect(missing.GetEntryId() == "nobody", "entryId is %q", missing.GetEntryId())
	})

	step("error-409", func() {
		mine, yours := identifier("crm_id"), identifier("phone")
		must(record(eventOf(mine)).Execute())
		must(record(eventOf(yours)).Execute())
		refused(record(eventOf(mine, yours)).Execute()).fault(409, "identifier_conflict")
	})

	step("error-413", func() {
		large := taken
		large.CustomEventName = strings.Repeat("x", 256<<10)
		refused(record(large).Execute()).fault(413, "payload_too_large")
	})

	step("error-422", func() {
		another := record(eventOf(identifier("email"))).IdempotencyKey(key)
		refused(another.Execute()).fault(422, "idempotency_key_reused")
	})

	step("error-429", func() {
		limited := connect("FLOWTRAIL_KEY", "FLOWTRAIL_LIMITED_URL").ModulesAPI.ListModules(ctx, project)
		limited.Execute()
		spent := refused(limited.Execute())
		spent.fault(429, "rate_limited")
		seconds, err := strconv.Atoi(spent.Header.Get("Retry-After"))
		expect(err == nil && seconds > 0, "Retry-After is %q", spent.Header.Get("Retry-After"))
	})
}

// connect returns a client with the key and the URL in the environment variables of these names.
func connect(key, url string) *flowtrail.APIClient {
	configuration := flowtrail.NewConfiguration()
	configuration.Servers[0].URL = os.Getenv(url)
	configuration.AddDefaultHeader("X-Api-Key", os.Getenv(key))
	return flowtrail.NewAPIClient(configuration)
}

// A listing is the generated request for a page of a list.
type listing[Row, Request any] interface {
	Cursor(string) Request
	Execute() ([]Row, *http.Response, error)
}

// walk reads the rows of a list page by page; nextOf returns the cursor of the next page, or "".
func walk[Row any, Request listing[Row, Request]](list Request, nextOf func(*http.Response) string) (rows []Row) {
	for {
		page, response := must(list.Execute())
		rows = append(rows, page...)
		cursor := nextOf(response)
		if cursor == "" {
			return rows
		}
		list = list.Cursor(cursor)
	}
}

func nextByCursor(response *http.Response) string { return response.Header.Get("Next-Cursor") }

var nextLink = regexp.MustCompile(`^<([^>]+)>; rel="next"$`)

// nextByLink returns the cursor in the URL of the next page, which otherwise equals that of this page.
func nextByLink(response *http.Response) string {
	link := response.Header.Get("Link")
	if link == "" {
		return ""
	}
	match := nextLink.FindStringSubmatch(link)
	expect(match != nil, "Link is %s", link)
	target, err := url.Parse(match[1])
	expect(err == nil, "Link is %s", link)
	expect(target.Path == response.Request.URL.Path && target.Query().Get("limit") == "50", "Link is %s", link)
	return target.Query().Get("cursor")
}

func idsOf(entries []flowtrail.EntryPageViews) map[string]bool {
	ids := map[string]bool{}
	for _, entry := range entries {
		ids[entry.EntryId] = true
	}
	return ids
}

// identifier returns an identifier that no other contact has.
func identifier(key string) flowtrail.ContactIdentifier {
	return flowtrail.ContactIdentifier{Key: key, Value: jsonOf(text + rand.Text())}
}

// eventOf is a current custom event of the contact with these identifiers.
func eventOf(identifiers ...flowtrail.ContactIdentifier) flowtrail.CustomEventInput {
	props := jsonOf(map[string]string{"said": text})
	return flowtrail.CustomEventInput{
		ModuleId:         module,
		Timestamp:        time.Now().Truncate(time.Millisecond),
		CustomEventName:  text,
		CustomEventProps: &props,
		Identifiers:      identifiers,
	}
}

func jsonOf(value any) string {
	encoded, err := json.Marshal(value)
	expect(err == nil, "%v", err)
	return string(encoded)
}

// must is the result of a call, which must succeed.
func must[T any](data T, response *http.Response, err error) (T, *http.Response) {
	expect(err == nil, "%v", err)
	return data, response
}

// A refusal is the response to a call that failed, and the typed error in its body, if it has one.
type refusal struct {
	*http.Response
	body flowtrail.ErrorBody
}

// refused is the refusal of a call, which must fail.
func refused[T any](_ T, response *http.Response, err error) refusal {
	var failure *flowtrail.GenericOpenAPIError
	expect(errors.As(err, &failure), "not refused, but: %v", err)
	body, _ := failure.Model().(flowtrail.ErrorBody)
	return refusal{response, body}
}

// fault is the typed error, which must have the status, the code and the project.
func (r refusal) fault(status int, code string) flowtrail.ErrorBody {
	expect(r.StatusCode == status, "answered %s", r.Status)
	expect(r.body.Error.Code == code, "the code is %q", r.body.Error.Code)
	expect(r.body.GetProjectId() == project, "the error does not name the project")
	return r.body
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
