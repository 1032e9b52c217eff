//! Services by NATS's service API, so that `nats micro ls / info / stats` show them.

use std::sync::Arc;

use async_nats::HeaderMap;
use async_nats::service::{Request, ServiceExt};
use futures::{FutureExt, StreamExt};
use tokio::sync::oneshot;
use tokio::task::coop::unconstrained;

use super::backend::{NatsBackend, backend_error, incoming, to_nats};
use crate::backend::{Backend, Registration, Respond, ServiceInfo, Sink};
use crate::error::BusError;
use crate::message::Message;

/// Answers through the service, which counts requests and their time.
struct Responder(Request);

impl Respond for Responder {
    fn respond(&self, message: Message) -> Result<(), BusError> {
        let headers = to_nats(&message.headers)?.unwrap_or_else(HeaderMap::new);
        // Polled once, as a publish is.
        match unconstrained(self.0.respond_with_headers(Ok(message.payload), headers)).now_or_never() {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) => Err(BusError::Closed),
            None => Err(BusError::Full { queued_bytes: 0, max_bytes: 0, max_messages: 0 }),
        }
    }
}

pub(super) async fn serve(
    backend: &NatsBackend,
    info: ServiceInfo,
    sink: Arc<dyn Sink>,
) -> Result<Registration, BusError> {
    let client = backend.client.clone();
    let reports = backend.reports.clone();
    let (stop, mut stopped) = oneshot::channel::<()>();
    // On the client's runtime: the library spawns tasks while it starts the service.
    let starting = backend.runtime.spawn(async move {
        let service = client.service_builder().description(&info.description).start(&info.name, &info.version).await?;
        let mut endpoints = Vec::with_capacity(info.endpoints.len());
        for endpoint in &info.endpoints {
            let builder = service.endpoint_builder().name(&endpoint.name).queue_group(&endpoint.queue);
            endpoints.push(builder.add(endpoint.subject.as_str()).await?);
        }
        tokio::spawn(async move {
            let mut requests = futures::stream::select_all(endpoints);
            loop {
                let next = tokio::select! {
                    biased;
                    next = requests.next() => next,
                    _ = &mut stopped => break,
                };
                let Some(request) = next else {
                    sink.closed();
                    break;
                };
                match incoming(request.message.clone()) {
                    Ok(mut incoming) => {
                        incoming.responder = Some(Arc::new(Responder(request)));
                        sink.deliver(incoming);
                    }
                    Err((subject, error)) => drop(reports.malformed.refuse(&subject, "nats", &error)),
                }
            }
            if let Err(error) = service.stop().await {
                tracing::debug!(%error, "stop service");
            }
        });
        Ok::<_, async_nats::Error>(())
    });
    starting
        .await
        .map_err(|error| backend_error("start a service", error))?
        .map_err(|error| backend_error("start a service", error))?;
    backend.flush(crate::FLUSH_DEADLINE).await?;
    Ok(Registration::new(parking_lot::Mutex::new(stop)))
}
