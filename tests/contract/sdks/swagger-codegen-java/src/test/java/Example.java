import flowtrail.ApiClient;
import flowtrail.ApiException;
import flowtrail.api.EntriesApi;
import flowtrail.api.EventsApi;
import flowtrail.model.ContactIdentifier;
import flowtrail.model.CustomEventInput;
import flowtrail.model.ErrorBody;
import java.time.OffsetDateTime;

public final class Example {
  public static void main(String[] args) throws ApiException {
    var client = new ApiClient();
    client.setBasePath(System.getenv().getOrDefault("FLOWTRAIL_URL", "http://127.0.0.1:3000"));
    client.setApiKey(System.getenv("FLOWTRAIL_KEY"));

    // Every entry with its page views, page by page.
    var entries = new EntriesApi(client);
    String cursor = null;
    do {
      var page = entries.listEntryPageViewsWithHttpInfo("demo", 100, null, null, null, cursor);
      for (var entry : page.getData())
        System.out.println(entry.getEntryId() + " " + entry.getCreatedAt().getYear());
      var next = page.getHeaders().get("Next-Cursor");
      cursor = next == null ? null : next.get(0);
    } while (cursor != null);

    // A custom event, recorded once however often this is sent.
    var order =
        new CustomEventInput()
            .moduleId("skin-quiz")
            .timestamp(OffsetDateTime.parse("2026-03-01T09:41:12.345Z"))
            .customEventName("order_placed")
            .addIdentifiersItem(
                new ContactIdentifier().key("email").value("\"amara.okafor@example.com\""));
    try {
      var result = new EventsApi(client).recordCustomEvent(order, "demo", "order-10042");
      System.out.println(result.getEntryId());
    } catch (ApiException exception) {
      if (exception.getResponseBody() == null) throw exception;
      ErrorBody refusal =
          client.getJSON().deserialize(exception.getResponseBody(), ErrorBody.class);
      var error = refusal.getError();
      System.out.println(error.getCode() + " " + error.getDetails());
    }
  }
}
