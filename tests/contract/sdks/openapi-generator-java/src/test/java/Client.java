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

/** What the client of openapi-generator ({@code -g java}) has otherwise than that of swagger-codegen. */
final class Client {
  static final Gson GSON = JSON.getGson();

  private Client() {}

  static ApiResponse<CustomEventResult> record(
      EventsApi events, String project, CustomEventInput event, String idempotencyKey)
      throws ApiException {
    return events.recordCustomEventWithHttpInfo(project, event, idempotencyKey);
  }

  static CustomEventBatchResult recordBatch(
      EventsApi events, String project, CustomEventBatch batch) throws ApiException {
    return events.recordCustomEvents(project, batch);
  }

  static boolean replayed(CustomEventBatchItemResult result) {
    return result.getReplayed();
  }

  static ErrorBody errorOf(ApiException exception) {
    return exception.getErrorObject();
  }
}
