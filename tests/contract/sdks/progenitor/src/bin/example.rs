//! What docs/sdks.md shows.

use std::env;

use chrono::Datelike;
use flowtrail::{Client, Error, types};
use reqwest::header::{HeaderMap, RETRY_AFTER};

mod flowtrail {
    progenitor::generate_api!(spec = "generated/no-import.yaml", interface = Builder);
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut headers = HeaderMap::new();
    headers.insert("X-Api-Key", env::var("FLOWTRAIL_KEY")?.parse()?);
    let http = reqwest::Client::builder().default_headers(headers).build()?;
    let client = Client::new_with_client(&env::var("FLOWTRAIL_URL")?, http);

    // Every entry with its page views, page by page.
    let list_page_views = || client.list_entry_page_views().project_id("demo").limit(100u64);
    let mut page = list_page_views().send().await?;
    loop {
        for entry in page.iter() {
            println!("{} {} {}", entry.entry_id, entry.created_at.year(), entry.page_views.len());
        }
        let Some(cursor) = page.headers().get("Next-Cursor") else { break };
        page = list_page_views().cursor(cursor.to_str()?).send().await?;
    }

    // A custom event, recorded once however often this is sent.
    let email = types::ContactIdentifier::builder().key("email").value("\"amara.okafor@example.com\"");
    let event = types::CustomEventInput::builder()
        .module_id("skin-quiz")
        .timestamp("2026-03-01T09:41:12.345Z".parse::<chrono::DateTime<chrono::Utc>>()?)
        .custom_event_name("order_placed")
        .identifiers(vec![email.try_into()?]);
    let record = client.record_custom_event().project_id("demo").idempotency_key("order-10042").body(event);
    match record.send().await {
        Ok(recorded) => println!("{}", recorded.entry_id),
        Err(Error::ErrorResponse(refused)) if refused.error.code == "rate_limited" => {
            println!("wait {:?}", refused.headers().get(RETRY_AFTER));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
