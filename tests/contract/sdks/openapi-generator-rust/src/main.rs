//! Runs the journey of ../journey.md with the client of openapi-generator (`-g rust`).

use std::{
    collections::BTreeSet,
    env,
    fmt::Debug,
    sync::{Arc, Mutex},
};

use flowtrail::{
    apis::{
        Error,
        configuration::{ApiKey, Configuration},
        entries_api::{GetEntryError, ListEntryEventsError, get_entry, list_entry_events, list_entry_page_views},
        erasures_api::list_erasures,
        events_api::{RecordCustomEventError, list_project_events, record_custom_event, record_custom_events},
        modules_api::{
            GetModuleError, GetModuleVersionError, ListModulesError, get_module, get_module_version,
            list_module_versions, list_modules,
        },
    },
    models::{
        ContactIdentifier, CustomEventBatch, CustomEventBatchItem, CustomEventInput, EntryEvent, EntryPageViews,
        ErrorBody, SortDirection,
    },
};
use http::Extensions;
use jiff::Timestamp;
use reqwest::{
    Request, Response, StatusCode, Url,
    header::{ETAG, HeaderMap, LINK, RETRY_AFTER},
};
use reqwest_middleware::{ClientBuilder, Middleware, Next};
use serde_json::{Value, from_str, json};
use uuid::Uuid;

const PROJECT: &str = "demo";
const MODULE: &str = "skin-quiz";
/// Letters of several scripts, an emoji and quotes: what a client may garble.
const TEXT: &str = "Ärger, \"À la carte\", 日本 🎉";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (client, last) = connect("FLOWTRAIL_KEY", "FLOWTRAIL_URL");

    let modules = list_modules(&client, PROJECT).await.unwrap();
    assert!(modules.iter().any(|module| module.module_id == MODULE));
    ok("list-modules");

    let module = get_module(&client, PROJECT, MODULE, None).await.unwrap();
    from_str::<Value>(&module.json_string_prod).unwrap();
    let etag = last.header(ETAG.as_str()).unwrap();
    ok("get-module");

    let versions = list_module_versions(&client, PROJECT, MODULE, None, None, None).await.unwrap();
    let newest = &versions[0];
    ok("list-versions");

    let version = get_module_version(&client, PROJECT, MODULE, newest.version_number, None).await.unwrap();
    from_str::<Value>(&version.json_string).unwrap();
    assert_eq!(version.saved_at, newest.saved_at);
    ok("get-version");

    let list_page_views = async |limit, direction, updated_after, cursor: Option<String>| {
        list_entry_page_views(&client, PROJECT, Some(limit), direction, updated_after, None, cursor.as_deref()).await
    };
    let ascending = Some(SortDirection::Asc);
    let by_link = walk(async |cursor| list_page_views(50, None, None, cursor).await, || next_by_link(&last)).await;
    let by_cursor =
        walk(async |cursor| list_page_views(30, ascending, None, cursor).await, || last.header("Next-Cursor")).await;
    assert!(by_link.len() >= 200);
    assert_eq!(ids_of(&by_link).len(), by_link.len());
    assert_eq!(ids_of(&by_cursor), ids_of(&by_link));
    let middle = by_cursor[150].updated_at;
    let later = list_page_views(1000, ascending, Some(middle), None).await.unwrap();
    assert!(later.iter().eq(by_cursor.iter().filter(|entry| entry.updated_at >= middle)));
    ok("page-through");

    let first = &by_cursor[0];
    let created: Timestamp = get_entry(&client, PROJECT, &first.entry_id, None).await.unwrap().created_at;
    assert_eq!(created, first.created_at);
    ok("get-entry");

    let list_events = async |entry_id: &str, cursor: Option<&str>| {
        list_entry_events(&client, PROJECT, entry_id, Some(2), None, cursor).await
    };
    let events_of = async |entry_id: &str| -> Vec<EntryEvent> {
        walk(async |cursor| list_events(entry_id, cursor.as_deref()).await, || last.header("Next-Cursor")).await
    };
    let events = events_of(&first.entry_id).await;
    assert_eq!(events.iter().filter(|event| event.page_index.is_some()).count(), first.page_views.len());
    ok("list-events");

    let idempotency_key = Uuid::new_v4().to_string();
    let taken = event_of(vec![identifier("email"), identifier(TEXT)]);
    let record = async |event: &CustomEventInput, key| record_custom_event(&client, PROJECT, event.clone(), key).await;
    let recorded = record(&taken, Some(&idempotency_key)).await.unwrap();
    assert!(!recorded.contact_id.is_empty() && !recorded.entry_id.is_empty());
    assert_eq!(last.header("Idempotent-Replayed"), None);
    let [found] = &events_of(&recorded.entry_id).await[..] else { panic!("not one event") };
    assert_eq!(found.custom_event_name.as_deref(), Some(TEXT));
    assert_eq!(found.custom_event_props, taken.custom_event_props);
    assert_eq!(found.timestamp, recorded.timestamp);
    let again = record(&event_of(vec![taken.identifiers[1].clone()]), None).await.unwrap();
    assert_eq!(again.contact_id, recorded.contact_id);
    ok("record");

    let replayed = record(&taken, Some(&idempotency_key)).await.unwrap();
    assert_eq!(replayed, recorded);
    assert_eq!(last.header("Idempotent-Replayed").as_deref(), Some("true"));
    ok("replay");

    let item = |module: &str| CustomEventBatchItem {
        idempotency_key: Some(Uuid::new_v4().to_string()),
        ..CustomEventBatchItem::new(module.into(), taken.timestamp, TEXT.into(), taken.identifiers.clone())
    };
    let batch = CustomEventBatch::new(vec![item(MODULE), item("hair-quiz")]);
    let record_batch = async || record_custom_events(&client, PROJECT, batch.clone()).await.unwrap().results;
    let [accepted, rejected] = &record_batch().await[..] else { panic!("not two results") };
    assert_eq!((accepted.status, accepted.replayed), (200, Some(false)));
    let event = accepted.event.as_ref().unwrap();
    assert_eq!((&*event.custom_event_name, event.timestamp), (TEXT, recorded.timestamp));
    assert_eq!((rejected.status, &*rejected.error.as_ref().unwrap().code), (404, "module_does_not_exist"));
    assert_eq!((rejected.project_id.as_deref(), rejected.module_id.as_deref()), (Some(PROJECT), Some("hair-quiz")));
    let repeated = &record_batch().await[0];
    assert_eq!((&repeated.event, repeated.replayed), (&accepted.event, Some(true)));
    ok("record-batch");

    let descending = Some(SortDirection::Desc);
    let before =
        list_project_events(&client, PROJECT, Some(1), descending, None, None, None).await.unwrap()[0].position;
    let fresh = record(&event_of(vec![identifier("email")]), None).await.unwrap();
    let page = list_project_events(&client, PROJECT, Some(10), ascending, None, Some(before), Some(5)).await.unwrap();
    let [latest] = &page[..] else { panic!("not one event: {page:?}") };
    assert_eq!(latest.event_id, fresh.event_id);
    assert!(latest.position > before);
    let _: Timestamp = latest.recorded_at;
    assert_eq!(last.header(LINK.as_str()), None);
    let cursor = last.header("Next-Cursor").unwrap();
    let rest = list_project_events(&client, PROJECT, None, ascending, Some(&cursor), None, None).await.unwrap();
    assert!(rest.is_empty(), "{rest:?}");
    ok("follow-feed");

    let newest = list_erasures(&client, PROJECT, Some(1), descending, None, None, None).await.unwrap();
    let [erasure] = &newest[..] else { panic!("not one erasure: {newest:?}") };
    assert!(!erasure.contact_id.is_empty() && erasure.entry_ids.len() == 2, "{erasure:?}");
    assert!(erasure.entry_ids.iter().all(|id| !id.is_empty()), "{erasure:?}");
    let _: Timestamp = erasure.erased_at;
    let later =
        list_erasures(&client, PROJECT, None, ascending, None, Some(erasure.position), None).await.unwrap();
    assert!(later.is_empty(), "{later:?}");
    assert_eq!(last.header(LINK.as_str()), None);
    assert!(last.header("Next-Cursor").is_some());
    ok("list-erasures");

    // The client expects JSON of every status below 400.
    let unchanged = get_module(&client, PROJECT, MODULE, Some(&etag)).await;
    assert!(matches!(unchanged, Err(Error::Serde(_))), "{unchanged:?}");
    assert_eq!(last.status(), 304);
    assert_eq!(last.header(ETAG.as_str()), Some(etag));
    ok("conditional");

    let invalid = fault(list_events(&first.entry_id, Some("AWJ4")).await, 400, "invalid_request");
    assert_eq!(invalid.error.details.unwrap()[0].pointer, "/query/cursor");
    ok("error-400");

    let (stranger, _) = connect("FLOWTRAIL_OTHER_KEY", "FLOWTRAIL_URL");
    fault(list_modules(&stranger, PROJECT).await, 401, "unauthorized");
    ok("error-401");

    let (reader, _) = connect("FLOWTRAIL_READ_KEY", "FLOWTRAIL_URL");
    fault(record_custom_event(&reader, PROJECT, taken.clone(), None).await, 403, "insufficient_scope");
    ok("error-403");

    let missing = fault(get_module(&client, PROJECT, "hair-quiz", None).await, 404, "module_does_not_exist");
    assert_eq!(missing.module_id.as_deref(), Some("hair-quiz"));
    ok("error-404-module");

    let outcome = get_module_version(&client, PROJECT, MODULE, 99, None).await;
    assert_eq!(fault(outcome, 404, "module_version_does_not_exist").version_number, Some(99));
    ok("error-404-version");

    let missing = fault(get_entry(&client, PROJECT, "nobody", None).await, 404, "entry_not_found");
    assert_eq!(missing.entry_id.as_deref(), Some("nobody"));
    ok("error-404-entry");

    let (mine, yours) = (identifier("crm_id"), identifier("phone"));
    for identifier in [&mine, &yours] {
        record(&event_of(vec![identifier.clone()]), None).await.unwrap();
    }
    fault(record(&event_of(vec![mine, yours]), None).await, 409, "identifier_conflict");
    ok("error-409");

    let large = CustomEventInput { custom_event_name: "x".repeat(256 * 1024), ..taken };
    fault(record(&large, None).await, 413, "payload_too_large");
    ok("error-413");

    let other = event_of(vec![identifier("email")]);
    fault(record(&other, Some(&idempotency_key)).await, 422, "idempotency_key_reused");
    ok("error-422");

    let (limited, last) = connect("FLOWTRAIL_KEY", "FLOWTRAIL_LIMITED_URL");
    let _ = list_modules(&limited, PROJECT).await;
    fault(list_modules(&limited, PROJECT).await, 429, "rate_limited");
    assert!(last.header(RETRY_AFTER.as_str()).unwrap().parse::<u32>().unwrap() > 0);
    ok("error-429");
}

/// Status and headers of a client's last response. A call does not return them, but a middleware sees them.
#[derive(Clone, Default)]
struct Last(Arc<Mutex<(StatusCode, HeaderMap)>>);

impl Last {
    fn status(&self) -> StatusCode {
        self.0.lock().unwrap().0
    }

    fn header(&self, name: &str) -> Option<String> {
        self.0.lock().unwrap().1.get(name).map(|value| value.to_str().unwrap().to_string())
    }
}

#[async_trait::async_trait]
impl Middleware for Last {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let response = next.run(request, extensions).await?;
        *self.0.lock().unwrap() = (response.status(), response.headers().clone());
        Ok(response)
    }
}

/// A client with the key and URL in the environment variables of these names.
fn connect(key_name: &str, url_name: &str) -> (Configuration, Last) {
    let variable = |name| env::var(name).expect(name);
    let last = Last::default();
    let configuration = Configuration {
        base_path: variable(url_name),
        api_key: Some(ApiKey { prefix: None, key: variable(key_name) }),
        client: ClientBuilder::new(reqwest::Client::new()).with(last.clone()).build(),
        ..Configuration::default()
    };
    (configuration, last)
}

/// The rows of a list, read page by page.
async fn walk<Row, Fault: Debug>(
    page_at: impl AsyncFn(Option<String>) -> Result<Vec<Row>, Error<Fault>>,
    next: impl Fn() -> Option<String>,
) -> Vec<Row> {
    let mut rows = page_at(None).await.unwrap();
    while let Some(cursor) = next() {
        rows.extend(page_at(Some(cursor)).await.unwrap());
    }
    rows
}

/// The cursor in the URL of the next page, which otherwise equals that of this page.
fn next_by_link(last: &Last) -> Option<String> {
    let link = last.header(LINK.as_str())?;
    let target = link.strip_prefix('<').and_then(|link| link.strip_suffix(">; rel=\"next\"")).expect(&link);
    let url = Url::parse("http://localhost").unwrap().join(target).unwrap();
    let parameter = |name| url.query_pairs().find(|(key, _)| key == name).expect(&link).1.into_owned();
    assert_eq!((url.path(), &*parameter("limit")), ("/projects/demo/entries-page-views", "50"));
    Some(parameter("cursor"))
}

fn ids_of(entries: &[EntryPageViews]) -> BTreeSet<&str> {
    entries.iter().map(|entry| &*entry.entry_id).collect()
}

/// An identifier that no other contact has.
fn identifier(key: &str) -> ContactIdentifier {
    ContactIdentifier::new(key.to_string(), json!(format!("{TEXT} {}", Uuid::new_v4())).to_string())
}

/// A current custom event of the contact with these identifiers.
fn event_of(identifiers: Vec<ContactIdentifier>) -> CustomEventInput {
    CustomEventInput {
        custom_event_props: Some(json!({ "said": TEXT }).to_string()),
        ..CustomEventInput::new(MODULE.to_string(), Timestamp::now(), TEXT.to_string(), identifiers)
    }
}

/// The error type of an operation, of which each has one of its own. `Status400` holds the error of any status.
trait Fault: Debug {
    fn body(self) -> Option<ErrorBody>;
}

macro_rules! faults {
    ($($name:ident),*) => {
        $(impl Fault for $name {
            fn body(self) -> Option<ErrorBody> {
                if let Self::Status400(body) = self { Some(body) } else { None }
            }
        })*
    };
}

faults!(
    GetEntryError,
    GetModuleError,
    GetModuleVersionError,
    ListEntryEventsError,
    ListModulesError,
    RecordCustomEventError
);

/// The typed error of a call that must fail with the status and code, with the project.
fn fault<T: Debug>(outcome: Result<T, Error<impl Fault>>, status: u16, code: &str) -> ErrorBody {
    let Err(Error::ResponseError(answer)) = outcome else { panic!("{outcome:?}") };
    let body = answer.entity.and_then(Fault::body).expect(&answer.content);
    assert_eq!((answer.status.as_u16(), &*body.error.code), (status, code));
    assert_eq!(body.project_id.as_deref(), Some(PROJECT));
    body
}

fn ok(step: &str) {
    println!("ok {step}");
}
