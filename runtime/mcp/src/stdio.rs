//! The server on standard input and output: a message a line.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rmcp::service::{QuitReason, ServerInitializeError, serve_server_with_ct};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::io::stdio_pipes;
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::CancellationToken;

use crate::{MAX_MESSAGE_BYTES, Server};

/// Why the server has ended before its client.
#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    /// The client does not begin as it should.
    #[error("the client has not begun the protocol: {0}; start `wasmrun mcp` from a client of MCP")]
    Begin(Box<ServerInitializeError>),
    /// A part of the server has panicked.
    #[error("the server broke: {0}")]
    Broken(String),
}

/// Serves the client at the other end of standard input and output, until that ends its side or `stop` says so. What runs
/// then is cancelled.
///
/// # Errors
/// When the client speaks something else.
pub async fn serve(server: Server, stop: CancellationToken) -> Result<(), StdioError> {
    let served = run(&server, stop).await;
    server.end().await;
    served
}

async fn run(server: &Server, stop: CancellationToken) -> Result<(), StdioError> {
    let (input, output) = stdio_pipes();
    let input = Watched {
        input,
        server: server.clone(),
    };
    let transport =
        AsyncRwTransport::new_server(input, output).with_max_line_length(MAX_MESSAGE_BYTES);
    let running = match serve_server_with_ct(server.clone(), transport, stop).await {
        Ok(running) => running,
        // It has gone before it began.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => {
            return Ok(());
        }
        Err(error) => return Err(StdioError::Begin(Box::new(error))),
    };
    match running.waiting().await {
        Ok(QuitReason::JoinError(error)) | Err(error) => Err(StdioError::Broken(error.to_string())),
        Ok(_) => Ok(()),
    }
}

/// Standard input, at whose end all calls are cancelled: nobody waits for their answers.
struct Watched<R> {
    input: R,
    server: Server,
}

impl<R: AsyncRead + Unpin> AsyncRead for Watched<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.input).poll_read(context, buffer));
        if read.is_err() || buffer.filled().len() == before {
            self.server.cancel_calls();
        }
        Poll::Ready(read)
    }
}
