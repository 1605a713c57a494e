//! What docs/sdks.md shows.

use std::{
    env,
    sync::{Arc, Mutex},
};

use flowtrail::apis::{
    Error,
    configuration::{ApiKey, Configuration},
    entries_api::list_entry_page_views,
    events_api::{RecordCustomEventError, record_custom_event},
};
use flowtrail::models::{ContactIdentifier, CustomEventInput};
use reqwest::{Request, Response, header::HeaderMap};
use reqwest_middleware::{ClientBuilder, Middleware, Next};

/// The headers of the last response. A call does not return them, but a middleware sees them.
#[derive(Clone, Default)]
struct Headers(Arc<Mutex<HeaderMap>>);

impl Headers {
    fn get(&self, name: &str) -> Option<String> {
        Some(self.0.lock().unwrap().get(name)?.to_str().ok()?.to_string())
    }
}

#[async_trait::async_trait]
impl Middleware for Headers {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut http::Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let response = next.run(request, extensions).await?;
        *self.0.lock().unwrap() = response.headers().clone();
        Ok(response)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let headers = Headers::default();
    let client = Configuration {
        base_path: env::var("FLOWTRAIL_URL")?,
        api_key: Some(ApiKey { prefix: None, key: env::var("FLOWTRAIL_KEY")? }),
        client: ClientBuilder::new(reqwest::Client::new()).with(headers.clone()).build(),
        ..Configuration::default()
    };

    // Every entry with its page views, page by page.
    let mut cursor = None;
    loop {
        let page = list_entry_page_views(&client, "demo", Some(100), None, None, None, cursor.as_deref()).await?;
        for entry in page {
            println!("{} {} {}", entry.entry_id, entry.created_at, entry.page_views.len());
        }
        cursor = headers.get("Next-Cursor");
        if cursor.is_none() {
            break;
        }
    }

    // A custom event, recorded once however often this is sent.
    let email = ContactIdentifier::new("email".into(), "\"amara.okafor@example.com\"".into());
    let time = "2026-03-01T09:41:12.345Z".parse()?;
    let order = CustomEventInput::new("skin-quiz".into(), time, "order_placed".into(), vec![email]);
    match record_custom_event(&client, "demo", order, Some("order-10042")).await {
        Ok(recorded) => println!("{}", recorded.entry_id),
        // Whatever the status, the error is in Status400.
        Err(Error::ResponseError(answer)) => match answer.entity {
            Some(RecordCustomEventError::Status400(body)) if body.error.code == "rate_limited" => {
                println!("wait {:?}", headers.get("Retry-After"));
            }
            Some(RecordCustomEventError::Status400(body)) => {
                println!("{} {:?}", body.error.message, body.error.details)
            }
            _ => println!("{} {}", answer.status, answer.content),
        },
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
