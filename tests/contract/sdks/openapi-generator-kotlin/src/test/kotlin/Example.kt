import flowtrail.apis.EntriesApi
import flowtrail.apis.EventsApi
import flowtrail.infrastructure.ApiClient
import flowtrail.infrastructure.ClientError
import flowtrail.infrastructure.Serializer
import flowtrail.infrastructure.Success
import flowtrail.models.ContactIdentifier
import flowtrail.models.CustomEventInput
import flowtrail.models.ErrorBody
import java.time.OffsetDateTime

fun main() {
    val url = System.getenv("FLOWTRAIL_URL") ?: "http://127.0.0.1:3000"
    ApiClient.apiKey["X-Api-Key"] = System.getenv("FLOWTRAIL_KEY")

    // Every entry with its page views, page by page.
    val entries = EntriesApi(url)
    var cursor: String? = null
    do {
        val page = entries.listEntryPageViewsWithHttpInfo("demo", 100, null, null, null, cursor)
        check(page is Success) { "status ${page.statusCode}" }
        for (entry in page.data.orEmpty()) println("${entry.entryId} ${entry.createdAt.year} ${entry.pageViews.size}")
        cursor = page.headers["Next-Cursor"]?.first()
    } while (cursor != null)

    // A custom event, recorded once however often this is sent.
    val order = CustomEventInput(
        moduleId = "skin-quiz",
        timestamp = OffsetDateTime.parse("2026-03-01T09:41:12.345Z"),
        customEventName = "order_placed",
        identifiers = listOf(ContactIdentifier(key = "email", value = "\"amara.okafor@example.com\"")),
    )
    when (val answer = EventsApi(url).recordCustomEventWithHttpInfo("demo", order, "order-10042")) {
        is Success -> println(answer.data?.entryId)
        is ClientError -> {
            val refusal = Serializer.moshi.adapter(ErrorBody::class.java).fromJson(answer.body.toString())
            println("${refusal?.error?.code} ${refusal?.error?.details}")
        }
        else -> error("status ${answer.statusCode}")
    }
}
