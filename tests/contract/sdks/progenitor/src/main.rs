//! Runs the journey of ../journey.md with the client of progenitor.

use std::{collections::BTreeSet, env, fmt::Debug};

use chrono::{DateTime, SubsecRound, Utc};
use flowtrail::{Client, Error, ResponseValue, types};
use reqwest::header::{ETAG, HeaderMap, LINK, RETRY_AFTER, WWW_AUTHENTICATE};
use serde_json::{Value, from_str, json};
use uuid::Uuid;

mod flowtrail {
    progenitor::generate_api!(
        spec = "generated/no-import.yaml",
        interface = Builder,
        // A `serde_json::Value` is a gap in the document; having no order, it does not compile.
        derives = [PartialEq, PartialOrd],
        inner_type = Option<String>,
        pre_hook = crate::follow,
    );
}

const PROJECT: &str = "demo";
const MODULE: &str = "skin-quiz";
/// Letters of several scripts, an emoji and quotes: what a client may garble.
const TEXT: &str = "Ärger, \"À la carte\", 日本 🎉";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let client = connect("FLOWTRAIL_URL", "FLOWTRAIL_KEY", None);

    let modules = client.list_modules().project_id(PROJECT).send().await.unwrap();
    assert!(modules.iter().any(|module| module.module_id == MODULE));
    ok("list-modules");

    let get_module = |id: &str| client.get_module().project_id(PROJECT).module_id(id);
    let module = get_module(MODULE).send().await.unwrap();
    from_str::<Value>(&module.json_string_prod).unwrap();
    ok("get-module");

    let versions = client.list_module_versions().project_id(PROJECT).module_id(MODULE).send().await.unwrap();
    let newest = &versions[0];
    ok("list-versions");

    let get_version =
        |number: i32| client.get_module_version().project_id(PROJECT).module_id(MODULE).version_number(number);
    let version = get_version(newest.version_number).send().await.unwrap();
    from_str::<Value>(&version.json_string).unwrap();
    assert_eq!(version.saved_at, newest.saved_at);
    ok("get-version");

    let list_page_views = || client.list_entry_page_views().project_id(PROJECT);
    let page = list_page_views().limit(50u64).send().await.unwrap();
    let first = page[0].clone();
    let mut by_link = BTreeSet::new();
    collect(&mut by_link, &page);
    let mut link = header(page.headers(), LINK.as_str());
    while link.is_some() {
        let client = connect("FLOWTRAIL_URL", "FLOWTRAIL_KEY", link);
        let page = client.list_entry_page_views().project_id(PROJECT).send().await.unwrap();
        collect(&mut by_link, &page);
        link = header(page.headers(), LINK.as_str());
    }
    assert!(by_link.len() >= 200);

    let mut by_cursor = BTreeSet::new();
    let ascending = || list_page_views().limit(30u64).direction(types::SortDirection::Asc);
    let mut page = ascending().send().await.unwrap();
    collect(&mut by_cursor, &page);
    while let Some(cursor) = header(page.headers(), "Next-Cursor") {
        page = ascending().cursor(cursor).send().await.unwrap();
        collect(&mut by_cursor, &page);
    }
    assert_eq!(by_cursor, by_link);

    let latest = list_page_views().updated_after(first.updated_at).send().await.unwrap();
    assert!(!latest.is_empty() && latest.iter().all(|entry| entry.updated_at == first.updated_at));
    ok("page-through");

    let get_entry = |id: &str| client.get_entry().project_id(PROJECT).entry_id(id);
    let created: DateTime<Utc> = get_entry(&first.entry_id).send().await.unwrap().created_at;
    assert_eq!(created, first.created_at);
    ok("get-entry");

    let events = events_of(&client, &first.entry_id).await;
    assert_eq!(events.iter().filter(|event| event.page_index.is_some()).count(), first.page_views.len());
    ok("list-events");

    let idempotency_key = Uuid::new_v4().to_string();
    let event = event_of(vec![identifier("email"), identifier(TEXT)]);
    let record = |event: &types::CustomEventInput| client.record_custom_event().project_id(PROJECT).body(event.clone());
    let record_once = |event| record(event).idempotency_key(idempotency_key.as_str());
    let recorded = record_once(&event).send().await.unwrap();
    assert!(!recorded.contact_id.is_empty() && !recorded.entry_id.is_empty());
    assert_eq!(header(recorded.headers(), "Idempotent-Replayed"), None);
    let [found] = &events_of(&client, &recorded.entry_id).await[..] else { panic!("not one event") };
    assert_eq!(found.custom_event_name.as_deref(), Some(TEXT));
    assert_eq!(found.custom_event_props.as_deref(), Some(event.custom_event_props.as_str()));
    assert_eq!(found.timestamp, event.timestamp);
    let again = record(&event_of(vec![event.identifiers[1].clone()])).send().await.unwrap();
    assert_eq!(again.contact_id, recorded.contact_id);
    ok("record");

    let replayed = record_once(&event).send().await.unwrap();
    assert_eq!(*replayed, *recorded);
    assert_eq!(header(replayed.headers(), "Idempotent-Replayed").as_deref(), Some("true"));
    ok("replay");

    let item = |module: &str| -> types::CustomEventBatchItem {
        types::CustomEventBatchItem::builder()
            .module_id(module)
            .timestamp(event.timestamp)
            .custom_event_name(TEXT)
            .identifiers(event.identifiers.clone())
            .idempotency_key(Uuid::new_v4().to_string().parse::<types::CustomEventBatchItemIdempotencyKey>().unwrap())
            .try_into()
            .unwrap()
    };
    let batch = types::CustomEventBatch::builder().events(vec![item(MODULE), item("hair-quiz")]);
    let record_batch = || client.record_custom_events().project_id(PROJECT).body(batch.clone());
    let answer = record_batch().send().await.unwrap();
    let [accepted, rejected] = &answer.results[..] else { panic!("not two results: {answer:?}") };
    assert_eq!((accepted.status, accepted.replayed), (200, Some(false)));
    let recorded = accepted.event.as_ref().unwrap();
    assert_eq!((&*recorded.custom_event_name, recorded.timestamp), (TEXT, event.timestamp));
    assert_eq!((rejected.status, &*rejected.error.as_ref().unwrap().code), (404, "module_does_not_exist"));
    assert_eq!((rejected.project_id.as_deref(), rejected.module_id.as_deref()), (Some(PROJECT), Some("hair-quiz")));
    let repeated = &record_batch().send().await.unwrap().results[0];
    assert_eq!((&repeated.event, repeated.replayed), (&accepted.event, Some(true)));
    ok("record-batch");

    let feed = |direction| client.list_project_events().project_id(PROJECT).direction(direction);
    let before = feed(types::SortDirection::Desc).limit(1u64).send().await.unwrap()[0].position;
    let fresh = record(&event_of(vec![identifier("email")])).send().await.unwrap();
    let page = feed(types::SortDirection::Asc).after(before).wait(5u64).limit(10u64).send().await.unwrap();
    let [latest] = &page[..] else { panic!("not one event: {page:?}") };
    assert_eq!(latest.event_id, fresh.event_id);
    assert!(latest.position > before);
    let _: DateTime<Utc> = latest.recorded_at;
    assert_eq!(header(page.headers(), LINK.as_str()), None);
    let cursor = header(page.headers(), "Next-Cursor").unwrap();
    let rest = feed(types::SortDirection::Asc).cursor(cursor).send().await.unwrap();
    assert!(rest.is_empty(), "{rest:?}");
    ok("follow-feed");

    let erasures = |direction| client.list_erasures().project_id(PROJECT).direction(direction);
    let newest = erasures(types::SortDirection::Desc).limit(1u64).send().await.unwrap();
    let [erasure] = &newest[..] else { panic!("not one erasure: {newest:?}") };
    assert!(!erasure.contact_id.is_empty() && erasure.entry_ids.len() == 2, "{erasure:?}");
    assert!(erasure.entry_ids.iter().all(|id| !id.is_empty()), "{erasure:?}");
    let _: DateTime<Utc> = erasure.erased_at;
    let later = erasures(types::SortDirection::Asc).after(erasure.position).send().await.unwrap();
    assert!(later.is_empty(), "{later:?}");
    assert_eq!(header(later.headers(), LINK.as_str()), None);
    assert!(header(later.headers(), "Next-Cursor").is_some());
    ok("list-erasures");

    let etag = header(module.headers(), ETAG.as_str()).unwrap();
    match get_module(MODULE).if_none_match(etag.as_str()).send().await {
        // Progenitor supports results with 2xx, and errors with 4xx and 5xx.
        Err(Error::UnexpectedResponse(answer)) => {
            assert_eq!(answer.status(), 304);
            assert_eq!(header(answer.headers(), ETAG.as_str()), Some(etag));
        }
        outcome => panic!("{outcome:?}"),
    }
    ok("conditional");

    let list_events = client.list_entry_events().project_id(PROJECT).entry_id(first.entry_id.as_str());
    let listed = list_events.cursor("AWJ4").send().await;
    assert_eq!(fault(listed, 400, "invalid_request").error.details[0].pointer, "/query/cursor");
    ok("error-400");

    let stranger = connect("FLOWTRAIL_URL", "FLOWTRAIL_OTHER_KEY", None);
    let refused = fault(stranger.list_modules().project_id(PROJECT).send().await, 401, "unauthorized");
    assert!(header(refused.headers(), WWW_AUTHENTICATE.as_str()).is_some());
    ok("error-401");

    let reader = connect("FLOWTRAIL_URL", "FLOWTRAIL_READ_KEY", None);
    let refused = reader.record_custom_event().project_id(PROJECT).body(event.clone()).send().await;
    fault(refused, 403, "insufficient_scope");
    ok("error-403");

    let missing = fault(get_module("hair-quiz").send().await, 404, "module_does_not_exist");
    assert_eq!(missing.module_id.as_deref(), Some("hair-quiz"));
    ok("error-404-module");

    let missing = fault(get_version(99).send().await, 404, "module_version_does_not_exist");
    assert_eq!(missing.version_number, Some(99));
    ok("error-404-version");

    let missing = fault(get_entry("nobody").send().await, 404, "entry_not_found");
    assert_eq!(missing.entry_id.as_deref(), Some("nobody"));
    ok("error-404-entry");

    let (mine, yours) = (identifier("crm_id"), identifier("phone"));
    for identifier in [&mine, &yours] {
        record(&event_of(vec![identifier.clone()])).send().await.unwrap();
    }
    fault(record(&event_of(vec![mine, yours])).send().await, 409, "identifier_conflict");
    ok("error-409");

    // The client rejects strings that are too long, but not lists.
    let large = event_of(vec![identifier("email"); 5000]);
    fault(record(&large).send().await, 413, "payload_too_large");
    ok("error-413");

    let other = event_of(vec![identifier("email")]);
    fault(record_once(&other).send().await, 422, "idempotency_key_reused");
    ok("error-422");

    let limited = connect("FLOWTRAIL_LIMITED_URL", "FLOWTRAIL_KEY", None);
    let list_modules = || limited.list_modules().project_id(PROJECT);
    let _ = list_modules().send().await;
    let refused = fault(list_modules().send().await, 429, "rate_limited");
    assert!(header(refused.headers(), RETRY_AFTER.as_str()).unwrap().parse::<u32>().unwrap() > 0);
    ok("error-429");
}

/// A client with the URL and key in the environment variables of these names.
fn connect(url_name: &str, key_name: &str, link: Option<String>) -> Client {
    let variable = |name| env::var(name).expect(name);
    let headers = HeaderMap::from_iter([("x-api-key".parse().unwrap(), variable(key_name).parse().unwrap())]);
    let http = reqwest::Client::builder().default_headers(headers).build().unwrap();
    Client::new_with_client(&variable(url_name), http, link)
}

/// Requests the URL of a client's Link header, if it has one, instead of that of the parameters.
fn follow(link: &Option<String>, request: &mut reqwest::Request) {
    if let Some(link) = link {
        let target = link.strip_prefix('<').and_then(|link| link.strip_suffix(">; rel=\"next\"")).expect(link);
        *request.url_mut() = request.url().join(target).unwrap();
    }
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| value.to_str().unwrap().to_string())
}

/// Adds a page's entries to those seen, and fails on duplicates.
fn collect(seen: &mut BTreeSet<String>, page: &[types::EntryPageViews]) {
    for entry in page {
        assert!(seen.insert(entry.entry_id.clone()), "{} comes twice", entry.entry_id);
    }
}

/// All events of an entry, read two at a time.
async fn events_of(client: &Client, entry_id: &str) -> Vec<types::EntryEvent> {
    let list_events = || client.list_entry_events().project_id(PROJECT).entry_id(entry_id).limit(2u64);
    let mut page = list_events().send().await.unwrap();
    let mut events = page.clone();
    while let Some(cursor) = header(page.headers(), "Next-Cursor") {
        page = list_events().cursor(cursor).send().await.unwrap();
        events.extend_from_slice(&page);
    }
    events
}

/// An identifier that no other contact has.
fn identifier(key: &str) -> types::ContactIdentifier {
    let value = json!(format!("{TEXT} {}", Uuid::new_v4())).to_string();
    types::ContactIdentifier::builder().key(key).value(value).try_into().unwrap()
}

/// A current custom event of the contact with these identifiers.
fn event_of(identifiers: Vec<types::ContactIdentifier>) -> types::CustomEventInput {
    types::CustomEventInput::builder()
        .module_id(MODULE)
        .timestamp(Utc::now().trunc_subsecs(3))
        .custom_event_name(TEXT)
        .custom_event_props(json!({ "said": TEXT }).to_string())
        .identifiers(identifiers)
        .try_into()
        .unwrap()
}

/// The typed error of a call that must fail with the status and code, with the project.
fn fault<T: Debug>(
    outcome: Result<ResponseValue<T>, Error<types::ErrorBody>>,
    status: u16,
    code: &str,
) -> ResponseValue<types::ErrorBody> {
    match outcome {
        Err(Error::ErrorResponse(answer)) => {
            assert_eq!((answer.status().as_u16(), &*answer.error.code), (status, code));
            assert_eq!(answer.project_id.as_deref(), Some(PROJECT));
            answer
        }
        outcome => panic!("{outcome:?}"),
    }
}

fn ok(step: &str) {
    println!("ok {step}");
}
