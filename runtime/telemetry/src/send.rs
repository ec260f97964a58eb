//! Sends spans to the collector, in batches, and again if it does not take them.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use wasmrun_model::wire::TaskRow;

use crate::endpoint::Endpoint;
use crate::meters::{Meters, Said};
use crate::span;

/// How many spans are sent at once.
pub(crate) const MOST_SPANS: usize = 512;
/// How long the first of them waits for others.
const EVERY: Duration = Duration::from_secs(1);
/// How long the collector may take for them.
const ANSWER: Duration = Duration::from_secs(10);
/// The first pause after it did not take them. Each is twice as long as the one before,
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// up to this.
const MOST_PAUSE: Duration = Duration::from_secs(30);
/// How often it is sent the same, for some seven minutes. A collector may take other spans, and never these.
const MOST_TRIES: usize = 20;

/// The task that sends spans.
pub(crate) struct Sending {
    pub(crate) endpoint: Endpoint,
    pub(crate) exporter: SpanExporter,
    pub(crate) scope: InstrumentationScope,
    pub(crate) meters: Arc<Meters>,
    pub(crate) stopped: watch::Receiver<bool>,
}

impl Sending {
    /// Sends until no more come. Once it is stopped, each batch is tried once more.
    pub(crate) async fn run(mut self, mut rows: mpsc::Receiver<TaskRow>) {
        let said = Said::default();
        loop {
            let batch = batch(&mut rows).await;
            if batch.is_empty() {
                return;
            }
            let spans = batch.iter().map(|row| span::of(row, &self.scope));
            let spans = spans.collect::<Vec<_>>();
            if let Err(error) = self.deliver(&spans, &said).await {
                self.meters.lose(spans.len() as u64, &error);
            }
        }
    }

    async fn deliver(&mut self, spans: &[SpanData], said: &Said) -> Result<(), String> {
        let (mut tries, mut pause) = (0, FIRST_PAUSE);
        loop {
            tries += 1;
            let error = match timeout(ANSWER, self.exporter.export(spans.to_vec())).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => words(error),
                Err(_) => format!("it has not answered within {ANSWER:?}"),
            };
            let is_stopped = *self.stopped.borrow();
            let endpoint = &self.endpoint;
            let error =
                format!("{error}; check that a collector takes OTLP over gRPC at {endpoint}");
            if is_stopped || tries == MOST_TRIES {
                return Err(error);
            }
            if said.is_due() {
                tracing::warn!(%error, "the collector takes no spans: they wait, and are sent again");
            }
            tokio::select! {
                () = sleep(pause) => {}
                _ = self.stopped.wait_for(|is_stopped| *is_stopped) => {}
            }
            pause = (pause * 2).min(MOST_PAUSE);
        }
    }
}

/// An error of the exporter, as people read it. That of gRPC ends with the `Debug` form of its causes.
fn words(error: OTelSdkError) -> String {
    let text = match error {
        OTelSdkError::InternalFailure(text) => text,
        error => error.to_string(),
    };
    let text = text.split(", source: ").next().unwrap_or_default();
    let parts = text.strip_prefix("code: '");
    match parts.and_then(|it| it.split_once("', message: \"")) {
        Some((code, message)) => format!("{code}: {}", message.trim_end_matches('"')),
        None => text.to_owned(),
    }
}

/// The next attempts; none when there will be no more.
async fn batch(rows: &mut mpsc::Receiver<TaskRow>) -> Vec<TaskRow> {
    let mut batch = Vec::new();
    rows.recv_many(&mut batch, MOST_SPANS).await;
    let filled = async {
        while (1..MOST_SPANS).contains(&batch.len()) {
            let room = MOST_SPANS - batch.len();
            if rows.recv_many(&mut batch, room).await == 0 {
                return;
            }
        }
    };
    // After that time the batch goes as it is.
    let _ = timeout(EVERY, filled).await;
    batch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_words() {
        let words = |text: &str| words(OTelSdkError::InternalFailure(text.to_owned()));
        let long = "code: 'The service is currently unavailable', message: \"tcp connect error\", source: \
                    tonic::transport::Error(Transport, ConnectError(Os { code: 111 }))";
        let short = "The service is currently unavailable: tcp connect error";
        assert_eq!(words(long), short);
        assert_eq!(words("code: 'Internal error'"), "code: 'Internal error'");
        assert_eq!(words("anything"), "anything");
    }

    #[tokio::test]
    async fn a_batch_has_all_that_there_is_and_no_more_than_it_may() {
        let (queue, mut rows) = mpsc::channel(2 * MOST_SPANS);
        for number in 0..MOST_SPANS as u64 + 2 {
            queue.send(span::tests::row(number)).await.unwrap();
        }
        drop(queue);
        let sizes = [batch(&mut rows).await.len(), batch(&mut rows).await.len()];
        assert_eq!(sizes, [MOST_SPANS, 2]);
        assert!(batch(&mut rows).await.is_empty());
    }
}
