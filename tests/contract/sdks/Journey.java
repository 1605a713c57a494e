import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import flowtrail.ApiClient;
import flowtrail.ApiException;
import flowtrail.ApiResponse;
import flowtrail.api.EntriesApi;
import flowtrail.api.ErasuresApi;
import flowtrail.api.EventsApi;
import flowtrail.api.ModulesApi;
import flowtrail.model.ErrorBody;
import flowtrail.model.ContactIdentifier;
import flowtrail.model.CustomEventBatch;
import flowtrail.model.CustomEventBatchItem;
import flowtrail.model.CustomEventInput;
import flowtrail.model.CustomEventResult;
import flowtrail.model.EntryEvent;
import flowtrail.model.EntryPageViews;
import flowtrail.model.FlowModule;
import flowtrail.model.PageView;
import flowtrail.model.SortDirection;
import java.io.IOException;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.function.Function;
import java.util.regex.Pattern;
import okhttp3.HttpUrl;

/**
 * Takes a generated Java client on the journey of journey.md. Two generators make nearly the same
 * one; what differs is in {@code Client}, which each folder has.
 */
public final class Journey {
  private static final String PROJECT = "demo";
  private static final String MODULE = "skin-quiz";

  /** Letters of several scripts, an emoji, and quotes: what a client may garble. */
  private static final String TEXT = "Ärger 日本 🎉 say \"hi\"";

  private static final Pattern NEXT = Pattern.compile("<([^>]+)>; rel=\"next\"");

  private static final ApiClient CLIENT = connect("FLOWTRAIL_KEY", "FLOWTRAIL_URL");
  private static final ModulesApi MODULES = new ModulesApi(CLIENT);
  private static final EntriesApi ENTRIES = new EntriesApi(CLIENT);
  private static final EventsApi EVENTS = new EventsApi(CLIENT);
  private static final ErasuresApi ERASURES = new ErasuresApi(CLIENT);

  private Journey() {}

  public static void main(String[] args) throws ApiException, IOException {
    var listed = MODULES.listModules(PROJECT);
    expect(listed.stream().anyMatch(module -> module.getModuleId().equals(MODULE)), listed);
    ok("list-modules");

    var module = MODULES.getModuleWithHttpInfo(PROJECT, MODULE, null);
    parse(module.getData().getJsonStringProd());
    var later = Client.GSON.toJson(module.getData()).replaceFirst("}$", ",\"later_field\":1}");
    var title = Client.GSON.fromJson(later, FlowModule.class).getTitle();
    expect(title.equals(module.getData().getTitle()), later);
    ok("get-module");

    var newest = MODULES.listModuleVersions(PROJECT, MODULE, null, null, null).get(0);
    ok("list-versions");

    var version = MODULES.getModuleVersion(PROJECT, MODULE, newest.getVersionNumber(), null);
    parse(version.getJsonString());
    expect(version.getSavedAt().equals(newest.getSavedAt()), version);
    ok("get-version");

    var byLink =
        walk(
            cursor -> ENTRIES.listEntryPageViewsWithHttpInfo(PROJECT, 50, null, null, null, cursor),
            Journey::nextByLink);
    var byCursor =
        walk(
            cursor ->
                ENTRIES.listEntryPageViewsWithHttpInfo(
                    PROJECT, 30, SortDirection.ASC, null, null, cursor),
            Journey::nextByCursor);
    expect(byLink.size() >= 200, byLink.size());
    expect(idsOf(byLink).size() == byLink.size(), byLink);
    expect(idsOf(byCursor).equals(idsOf(byLink)), byCursor);
    var middle = byCursor.get(150).getUpdatedAt();
    expect(
        ENTRIES
            .listEntryPageViews(PROJECT, 1000, SortDirection.ASC, middle, null, null)
            .equals(byCursor.stream().filter(e -> !e.getUpdatedAt().isBefore(middle)).toList()),
        middle);
    ok("page-through");

    var first = byCursor.get(0);
    var entry = ENTRIES.getEntry(PROJECT, first.getEntryId(), null);
    parse(entry.getEntryData());
    OffsetDateTime createdAt = entry.getCreatedAt();
    expect(createdAt.equals(first.getCreatedAt()), entry);
    expect(createdAt.getOffset().equals(ZoneOffset.UTC), entry);
    ok("get-entry");

    var events = new ArrayList<>(eventsOf(first.getEntryId()));
    Collections.reverse(events);
    var viewedAt =
        events.stream()
            .filter(event -> "flowpage".equals(event.getViewType()))
            .map(EntryEvent::getTimestamp)
            .toList();
    expect(viewedAt.equals(first.getPageViews().stream().map(PageView::getTimestamp).toList()), events);
    ok("list-events");

    var props = new JsonObject();
    props.addProperty("said", TEXT);
    var known = unguessable(TEXT);
    var taken = eventOf(known, unguessable("email")).customEventProps(props.toString());
    var idempotencyKey = UUID.randomUUID().toString();
    var recorded = record(taken, idempotencyKey);
    expect(!recorded.getContactId().isEmpty(), recorded);
    var found = eventsOf(recorded.getEntryId());
    expect(found.size() == 1, found);
    expect(found.get(0).getTimestamp().equals(recorded.getTimestamp()), found);
    expect(TEXT.equals(found.get(0).getCustomEventName()), found);
    expect(taken.getCustomEventProps().equals(found.get(0).getCustomEventProps()), found);
    var again = record(eventOf(known), null);
    expect(again.getContactId().equals(recorded.getContactId()), again);
    ok("record");

    var replay = Client.record(EVENTS, PROJECT, taken, idempotencyKey);
    expect(replay.getData().equals(recorded), replay.getData());
    expect("true".equals(header(replay, "Idempotent-Replayed")), replay.getHeaders());
    ok("replay");

    var batch =
        new CustomEventBatch()
            .addEventsItem(itemOf(taken, MODULE))
            .addEventsItem(itemOf(taken, "hair-quiz"));
    var results = Client.recordBatch(EVENTS, PROJECT, batch).getResults();
    expect(results.size() == 2, results);
    var accepted = results.get(0);
    expect(accepted.getStatus() == 200 && !Client.replayed(accepted), accepted);
    expect(TEXT.equals(accepted.getEvent().getCustomEventName()), accepted);
    expect(accepted.getEvent().getTimestamp().equals(recorded.getTimestamp()), accepted);
    var rejected = results.get(1);
    expect(rejected.getStatus() == 404, rejected);
    expect("module_does_not_exist".equals(rejected.getError().getCode()), rejected);
    expect(PROJECT.equals(rejected.getProjectId()), rejected);
    expect("hair-quiz".equals(rejected.getModuleId()), rejected);
    var repeated = Client.recordBatch(EVENTS, PROJECT, batch).getResults().get(0);
    expect(Client.replayed(repeated), repeated);
    expect(repeated.getEvent().equals(accepted.getEvent()), repeated);
    ok("record-batch");

    var before = EVENTS.listProjectEvents(PROJECT, 1, SortDirection.DESC, null, null, null).get(0);
    var fresh = record(eventOf(unguessable("email")), null);
    var page =
        EVENTS.listProjectEventsWithHttpInfo(
            PROJECT, 10, SortDirection.ASC, null, before.getPosition(), 5);
    expect(page.getData().size() == 1, page.getData());
    var latest = page.getData().get(0);
    expect(latest.getEventId().equals(fresh.getEventId()), latest);
    expect(latest.getPosition() > before.getPosition(), latest);
    expect(latest.getRecordedAt().getOffset().equals(ZoneOffset.UTC), latest);
    expect(header(page, "Link") == null && nextByCursor(page) != null, page.getHeaders());
    var rest =
        EVENTS.listProjectEvents(PROJECT, 10, SortDirection.ASC, nextByCursor(page), null, null);
    expect(rest.isEmpty(), rest);
    ok("follow-feed");

    var erasure = ERASURES.listErasures(PROJECT, 1, SortDirection.DESC, null, null, null).get(0);
    expect(!erasure.getContactId().isEmpty() && erasure.getEntryIds().size() == 2, erasure);
    expect(erasure.getEntryIds().stream().noneMatch(String::isEmpty), erasure);
    expect(erasure.getErasedAt().getOffset().equals(ZoneOffset.UTC), erasure);
    var none =
        ERASURES.listErasuresWithHttpInfo(
            PROJECT, 10, SortDirection.ASC, null, erasure.getPosition(), null);
    expect(none.getData().isEmpty(), none.getData());
    expect(header(none, "Link") == null && nextByCursor(none) != null, none.getHeaders());
    ok("list-erasures");

    var unchanged = refused(() -> MODULES.getModule(PROJECT, MODULE, header(module, "ETag")));
    expect(unchanged.getCode() == 304, unchanged);
    ok("conditional");

    var invalid =
        fault(
            400,
            "invalid_request",
            () -> ENTRIES.listEntryEvents(PROJECT, first.getEntryId(), null, null, "AWJ4"));
    expect(invalid.getError().getDetails().get(0).getPointer().equals("/query/cursor"), invalid);
    ok("error-400");

    var stranger = new ModulesApi(connect("FLOWTRAIL_OTHER_KEY", "FLOWTRAIL_URL"));
    fault(401, "unauthorized", () -> stranger.listModules(PROJECT));
    ok("error-401");

    var reader = new EventsApi(connect("FLOWTRAIL_READ_KEY", "FLOWTRAIL_URL"));
    fault(403, "insufficient_scope", () -> Client.record(reader, PROJECT, taken, null));
    ok("error-403");

    var noModule =
        fault(404, "module_does_not_exist", () -> MODULES.getModule(PROJECT, "hair-quiz", null));
    expect("hair-quiz".equals(noModule.getModuleId()), noModule);
    ok("error-404-module");

    var noVersion =
        fault(
            404,
            "module_version_does_not_exist",
            () -> MODULES.getModuleVersion(PROJECT, MODULE, 99, null));
    expect(noVersion.getVersionNumber() == 99, noVersion);
    ok("error-404-version");

    var noEntry = fault(404, "entry_not_found", () -> ENTRIES.getEntry(PROJECT, "nobody", null));
    expect("nobody".equals(noEntry.getEntryId()), noEntry);
    ok("error-404-entry");

    var mine = unguessable("crm_id");
    var yours = unguessable("phone");
    record(eventOf(mine), null);
    record(eventOf(yours), null);
    fault(409, "identifier_conflict", () -> record(eventOf(mine, yours), null));
    ok("error-409");

    var large = eventOf(mine).customEventName("x".repeat(256 * 1024));
    fault(413, "payload_too_large", () -> record(large, null));
    ok("error-413");

    fault(422, "idempotency_key_reused", () -> record(eventOf(mine), idempotencyKey));
    ok("error-422");

    var limited = new ModulesApi(connect("FLOWTRAIL_KEY", "FLOWTRAIL_LIMITED_URL"));
    try {
      limited.listModules(PROJECT);
    } catch (ApiException exception) {
      // An earlier journey may have used up the rate limit.
    }
    fault(429, "rate_limited", () -> limited.listModules(PROJECT));
    var headers = refused(() -> limited.listModules(PROJECT)).getResponseHeaders();
    expect(Integer.parseInt(headers.get("Retry-After").get(0)) > 0, headers);
    ok("error-429");
  }

  /** A client with the URL and key in the environment variables of these names. */
  private static ApiClient connect(String key, String url) {
    var client = new ApiClient();
    client.setBasePath(System.getenv(url));
    client.setApiKey(System.getenv(key));
    return client;
  }

  private interface Call<Answer> {
    Answer make() throws ApiException;
  }

  private interface Pages<Row> {
    ApiResponse<List<Row>> at(String cursor) throws ApiException;
  }

  /** The rows of a list, read page by page. */
  private static <Row> List<Row> walk(
      Pages<Row> pages, Function<ApiResponse<List<Row>>, String> nextOf) throws ApiException {
    var rows = new ArrayList<Row>();
    String cursor = null;
    do {
      var page = pages.at(cursor);
      rows.addAll(page.getData());
      cursor = nextOf.apply(page);
    } while (cursor != null);
    return rows;
  }

  private static String nextByCursor(ApiResponse<?> page) {
    return header(page, "Next-Cursor");
  }

  /** The cursor in the URL of the next page, which otherwise equals that of this page. */
  private static String nextByLink(ApiResponse<?> page) {
    var link = header(page, "Link");
    if (link == null) return null;
    var match = NEXT.matcher(link);
    expect(match.matches(), link);
    var address = HttpUrl.get(CLIENT.getBasePath()).resolve(match.group(1));
    expect(address.encodedPath().equals("/projects/" + PROJECT + "/entries-page-views"), link);
    expect("50".equals(address.queryParameter("limit")), link);
    return address.queryParameter("cursor");
  }

  private static List<EntryEvent> eventsOf(String entryId) throws ApiException {
    return walk(
        cursor -> ENTRIES.listEntryEventsWithHttpInfo(PROJECT, entryId, 2, null, cursor),
        Journey::nextByCursor);
  }

  private static Set<String> idsOf(List<EntryPageViews> entries) {
    var ids = new HashSet<String>();
    for (var entry : entries) ids.add(entry.getEntryId());
    return ids;
  }

  private static CustomEventResult record(CustomEventInput event, String idempotencyKey)
      throws ApiException {
    return Client.record(EVENTS, PROJECT, event, idempotencyKey).getData();
  }

  private static ContactIdentifier unguessable(String key) {
    var value = new JsonPrimitive(TEXT + " " + UUID.randomUUID());
    return new ContactIdentifier().key(key).value(value.toString());
  }

  private static CustomEventInput eventOf(ContactIdentifier... identifiers) {
    return new CustomEventInput()
        .moduleId(MODULE)
        .timestamp(OffsetDateTime.now(ZoneOffset.UTC))
        .customEventName(TEXT)
        .identifiers(List.of(identifiers));
  }

  /** The same event in a batch, in a module. */
  private static CustomEventBatchItem itemOf(CustomEventInput event, String module) {
    return new CustomEventBatchItem()
        .moduleId(module)
        .timestamp(event.getTimestamp())
        .customEventName(event.getCustomEventName())
        .identifiers(event.getIdentifiers())
        .idempotencyKey(UUID.randomUUID().toString());
  }

  /** A header of a response; its map ignores the case of names. */
  private static String header(ApiResponse<?> answer, String name) {
    var values = answer.getHeaders().get(name);
    return values == null ? null : values.get(0);
  }

  private static void parse(String json) throws IOException {
    Client.GSON.getAdapter(JsonElement.class).fromJson(json);
  }

  /** The exception that a call must raise. */
  private static ApiException refused(Call<?> call) {
    try {
      throw new AssertionError("not refused, but " + call.make());
    } catch (ApiException exception) {
      return exception;
    }
  }

  /** The typed error that a call must raise. */
  private static ErrorBody fault(int status, String code, Call<?> call) {
    var exception = refused(call);
    var error = Client.errorOf(exception);
    expect(exception.getCode() == status, exception);
    expect(error.getError().getCode().equals(code), error);
    expect(PROJECT.equals(error.getProjectId()), error);
    return error;
  }

  private static void ok(String step) {
    System.out.println("ok " + step);
  }

  private static void expect(boolean holds, Object instead) {
    if (!holds) throw new AssertionError(instead);
  }
}
