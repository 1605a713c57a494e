import com.google.gson.Gson;
import flowtrail.ApiException;
import flowtrail.ApiResponse;
import flowtrail.JSON;
import flowtrail.api.EventsApi;
import flowtrail.model.CustomEventBatch;
import flowtrail.model.CustomEventBatchItemResult;
import flowtrail.model.CustomEventBatchResult;
import flowtrail.model.CustomEventInput;
import flowtrail.model.CustomEventResult;
import flowtrail.model.ErrorBody;

/** What the client of swagger-codegen ({@code -l java}) has otherwise than that of openapi-generator. */
final class Client {
  static final Gson GSON = new JSON().getGson();

  private Client() {}

  static ApiResponse<CustomEventResult> record(
      EventsApi events, String project, CustomEventInput event, String idempotencyKey)
      throws ApiException {
    return events.recordCustomEventWithHttpInfo(event, project, idempotencyKey);
  }

  static CustomEventBatchResult recordBatch(
      EventsApi events, String project, CustomEventBatch batch) throws ApiException {
    return events.recordCustomEvents(batch, project);
  }

  static boolean replayed(CustomEventBatchItemResult result) {
    return result.isReplayed();
  }

  static ErrorBody errorOf(ApiException exception) {
    return GSON.fromJson(exception.getResponseBody(), ErrorBody.class);
  }
}
