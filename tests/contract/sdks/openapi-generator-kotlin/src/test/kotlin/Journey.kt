import flowtrail.apis.EntriesApi
import flowtrail.apis.ErasuresApi
import flowtrail.apis.EventsApi
import flowtrail.apis.ModulesApi
import flowtrail.infrastructure.ApiClient
import flowtrail.infrastructure.ApiResponse
import flowtrail.infrastructure.ClientError
import flowtrail.infrastructure.Serializer
import flowtrail.infrastructure.Success
import flowtrail.models.ContactIdentifier
import flowtrail.models.CustomEventBatch
import flowtrail.models.CustomEventBatchItem
import flowtrail.models.CustomEventInput
import flowtrail.models.CustomEventResult
import flowtrail.models.EntryEvent
import flowtrail.models.ErrorBody
import flowtrail.models.SortDirection
import java.time.OffsetDateTime
import java.time.ZoneOffset
import java.util.UUID
import okhttp3.HttpUrl.Companion.toHttpUrl

private const val PROJECT = "demo"
private const val MODULE = "skin-quiz"

/** Letters of several scripts, an emoji, and quotes: what a client may garble. */
private const val TEXT = "Ärger 日本 🎉 say \"hi\""

private val url = setting("FLOWTRAIL_URL")
private val modules = ModulesApi(url)
private val entries = EntriesApi(url)
private val events = EventsApi(url)
private val erasures = ErasuresApi(url)

/** Runs the journey of ../journey.md with the client of openapi-generator (`-g kotlin`). */
fun main() {
    useKey("FLOWTRAIL_KEY")

    val listed = modules.listModules(PROJECT)
    expect(listed.any { it.moduleId == MODULE }, listed)
    ok("list-modules")

    val module = modules.getModuleWithHttpInfo(PROJECT, MODULE, null)
    parse(dataOf(module).jsonStringProd)
    ok("get-module")

    val newest = modules.listModuleVersions(PROJECT, MODULE).first()
    ok("list-versions")

    val version = modules.getModuleVersion(PROJECT, MODULE, newest.versionNumber)
    parse(version.jsonString)
    expect(version.savedAt == newest.savedAt, version)
    ok("get-version")

    val byLink = walk(::nextByLink) { cursor ->
        entries.listEntryPageViewsWithHttpInfo(PROJECT, 50, null, null, null, cursor)
    }
    val byCursor = walk { cursor ->
        entries.listEntryPageViewsWithHttpInfo(PROJECT, 30, SortDirection.ASC, null, null, cursor)
    }
    val ids = byLink.map { it.entryId }.toSet()
    expect(ids.size >= 200 && ids.size == byLink.size, byLink.size)
    expect(byCursor.map { it.entryId }.toSet() == ids, byCursor)
    val middle = byCursor[150].updatedAt
    val later = entries.listEntryPageViews(PROJECT, 1000, SortDirection.ASC, updatedAfter = middle)
    expect(later == byCursor.filter { it.updatedAt >= middle }, middle)
    ok("page-through")

    val first = byCursor.first()
    val entry = entries.getEntry(PROJECT, first.entryId)
    parse(entry.entryData)
    expect(entry.createdAt == first.createdAt && entry.createdAt.offset == ZoneOffset.UTC, entry)
    ok("get-entry")

    val views = eventsOf(first.entryId).filter { it.viewType == "flowpage" }.reversed()
    expect(views.map { it.timestamp } == first.pageViews.map { it.timestamp }, views)
    ok("list-events")

    val known = unguessable(TEXT)
    val taken = eventOf(known, unguessable("email")).copy(customEventProps = "{\"said\": ${json(TEXT)}}")
    val idempotencyKey = UUID.randomUUID().toString()
    val recorded = dataOf(record(taken, idempotencyKey))
    expect(recorded.contactId.isNotEmpty(), recorded)
    val found = eventsOf(recorded.entryId).single()
    expect(found.customEventName == TEXT && found.customEventProps == taken.customEventProps, found)
    expect(found.timestamp == recorded.timestamp, found)
    expect(dataOf(record(eventOf(known))).contactId == recorded.contactId, known)
    ok("record")

    val replay = record(taken, idempotencyKey)
    expect(dataOf(replay) == recorded, replay)
    expect(header(replay, "Idempotent-Replayed") == "true", replay.headers)
    ok("replay")

    val batch = CustomEventBatch(listOf(MODULE, "hair-quiz").map { moduleId ->
        CustomEventBatchItem(moduleId, taken.timestamp, TEXT, taken.identifiers, idempotencyKey = "${UUID.randomUUID()}")
    })
    val (accepted, rejected) = events.recordCustomEvents(PROJECT, batch).results
    expect(accepted.status == 200 && accepted.replayed == false, accepted)
    expect(accepted.event?.customEventName == TEXT && accepted.event.timestamp == recorded.timestamp, accepted)
    expect(rejected.status == 404 && rejected.error?.code == "module_does_not_exist", rejected)
    expect(rejected.projectId == PROJECT && rejected.moduleId == "hair-quiz", rejected)
    val repeated = events.recordCustomEvents(PROJECT, batch).results.first()
    expect(repeated.event == accepted.event && repeated.replayed == true, repeated)
    ok("record-batch")

    val before = events.listProjectEvents(PROJECT, 1, SortDirection.DESC).single()
    val fresh = dataOf(record(eventOf(unguessable("email"))))
    val page = events.listProjectEventsWithHttpInfo(PROJECT, 10, SortDirection.ASC, null, before.position, 5)
    val latest = dataOf(page).single()
    expect(latest.eventId == fresh.eventId && latest.position > before.position, latest)
    expect(latest.recordedAt.offset == ZoneOffset.UTC, latest)
    expect(header(page, "Link") == null && nextByCursor(page) != null, page.headers)
    val rest = events.listProjectEvents(PROJECT, 10, SortDirection.ASC, nextByCursor(page))
    expect(rest.isEmpty(), rest)
    ok("follow-feed")

    val erasure = erasures.listErasures(PROJECT, 1, SortDirection.DESC).single()
    expect(erasure.contactId.isNotEmpty() && erasure.entryIds.size == 2, erasure)
    expect(erasure.entryIds.all(String::isNotEmpty) && erasure.erasedAt.offset == ZoneOffset.UTC, erasure)
    val none = erasures.listErasuresWithHttpInfo(PROJECT, 10, SortDirection.ASC, null, erasure.position, null)
    expect(dataOf(none).isEmpty(), dataOf(none))
    expect(header(none, "Link") == null && nextByCursor(none) != null, none.headers)
    ok("list-erasures")

    val unchanged = modules.getModuleWithHttpInfo(PROJECT, MODULE, header(module, "ETag"))
    expect(unchanged.statusCode == 304, unchanged.statusCode)
    ok("conditional")

    val invalid = entries.listEntryEventsWithHttpInfo(PROJECT, first.entryId, null, null, "AWJ4")
    val details = fault(400, "invalid_request", invalid).error.details
    expect(details?.first()?.pointer == "/query/cursor", details)
    ok("error-400")

    useKey("FLOWTRAIL_OTHER_KEY")
    fault(401, "unauthorized", modules.listModulesWithHttpInfo(PROJECT))
    ok("error-401")

    useKey("FLOWTRAIL_READ_KEY")
    fault(403, "insufficient_scope", record(taken))
    ok("error-403")

    useKey("FLOWTRAIL_KEY")
    val noModule = fault(404, "module_does_not_exist", modules.getModuleWithHttpInfo(PROJECT, "hair-quiz", null))
    expect(noModule.moduleId == "hair-quiz", noModule)
    ok("error-404-module")

    val noVersion =
        fault(404, "module_version_does_not_exist", modules.getModuleVersionWithHttpInfo(PROJECT, MODULE, 99, null))
    expect(noVersion.moduleId == MODULE && noVersion.versionNumber == 99, noVersion)
    ok("error-404-version")

    val noEntry = fault(404, "entry_not_found", entries.getEntryWithHttpInfo(PROJECT, "nobody", null))
    expect(noEntry.entryId == "nobody", noEntry)
    ok("error-404-entry")

    val mine = unguessable("crm_id")
    val yours = unguessable("phone")
    for (identifier in listOf(mine, yours)) dataOf(record(eventOf(identifier)))
    fault(409, "identifier_conflict", record(eventOf(mine, yours)))
    ok("error-409")

    fault(413, "payload_too_large", record(eventOf(mine).copy(customEventName = "x".repeat(256 * 1024))))
    ok("error-413")

    fault(422, "idempotency_key_reused", record(eventOf(mine), idempotencyKey))
    ok("error-422")

    val limited = ModulesApi(setting("FLOWTRAIL_LIMITED_URL"))
    limited.listModulesWithHttpInfo(PROJECT)
    val refused = limited.listModulesWithHttpInfo(PROJECT)
    fault(429, "rate_limited", refused)
    expect(header(refused, "Retry-After").orEmpty().toInt() > 0, refused.headers)
    ok("error-429")
}

private fun setting(name: String): String = System.getenv(name) ?: error("$name is not set")

/** Uses the key in the environment variable of this name from now on: all clients have the same. */
private fun useKey(name: String) {
    ApiClient.apiKey["X-Api-Key"] = setting(name)
}

/** The result of a call that must succeed. */
private fun <Data : Any> dataOf(answer: ApiResponse<Data?>): Data {
    check(answer is Success) { "status ${answer.statusCode}" }
    return checkNotNull(answer.data)
}

private fun header(answer: ApiResponse<*>, name: String): String? = answer.headers[name]?.first()

/** The typed error of a call that must fail, which the client itself has as text. */
private fun fault(status: Int, code: String, answer: ApiResponse<*>): ErrorBody {
    check(answer is ClientError && answer.statusCode == status) { "status ${answer.statusCode}" }
    val error = Serializer.moshi.adapter(ErrorBody::class.java).fromJson(answer.body as String)
    checkNotNull(error)
    expect(error.error.code == code && error.projectId == PROJECT, error)
    return error
}

/** The rows of a list, read page by page. */
private fun <Row> walk(
    nextOf: (ApiResponse<*>) -> String? = ::nextByCursor,
    pageAt: (String?) -> ApiResponse<List<Row>?>,
): List<Row> = generateSequence(pageAt(null)) { page -> nextOf(page)?.let(pageAt) }.flatMap { dataOf(it) }.toList()

private fun nextByCursor(page: ApiResponse<*>): String? = header(page, "Next-Cursor")

/** The cursor in the URL of the next page, which otherwise equals that of this page. */
private fun nextByLink(page: ApiResponse<*>): String? {
    val link = header(page, "Link") ?: return null
    val match = checkNotNull(Regex("<([^>]+)>; rel=\"next\"").matchEntire(link)) { link }
    val address = checkNotNull(url.toHttpUrl().resolve(match.groupValues[1])) { link }
    expect(address.encodedPath == "/projects/$PROJECT/entries-page-views", link)
    expect(address.queryParameter("limit") == "50", link)
    return address.queryParameter("cursor")
}

private fun eventsOf(entryId: String): List<EntryEvent> =
    walk { cursor -> entries.listEntryEventsWithHttpInfo(PROJECT, entryId, 2, null, cursor) }

private fun record(event: CustomEventInput, idempotencyKey: String? = null): ApiResponse<CustomEventResult?> =
    events.recordCustomEventWithHttpInfo(PROJECT, event, idempotencyKey)

private fun eventOf(vararg identifiers: ContactIdentifier) =
    CustomEventInput(MODULE, OffsetDateTime.now(ZoneOffset.UTC), TEXT, identifiers.toList())

private fun unguessable(key: String) = ContactIdentifier(key, json("$TEXT ${UUID.randomUUID()}"))

private fun json(text: String): String = Serializer.moshi.adapter(String::class.java).toJson(text)

private fun parse(json: String) {
    Serializer.moshi.adapter(Any::class.java).fromJson(json)
}

private fun ok(step: String) = println("ok $step")

private fun expect(holds: Boolean, instead: Any?) = check(holds) { instead.toString() }
