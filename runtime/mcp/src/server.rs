//! What the protocol asks of a server: its name, its tools, and calls of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use wasmrun_client::Client;

use crate::MAX_CALLS;
use crate::call::{self, Printed};
use crate::tools::Action;

/// How many tools an error names when there is no tool of the name that was called.
const MAX_NAMES_TOLD: usize = 30;
const INSTRUCTIONS: &str = "Each call of a tool runs in a fresh WebAssembly sandbox, with limits on time and memory, and keeps \
     nothing for the next. Calls may be made at the same time.";

/// A server of tools. Cheap to clone; clones are one server.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

struct Inner {
    client: Client,
    tools: Vec<Tool>,
    /// What runs, by the tool's name, and where its description is.
    actions: BTreeMap<String, (usize, Action)>,
    calls: Semaphore,
    /// When the server ends, whatever the transport makes of it.
    ended: CancellationToken,
}

impl Server {
    pub(crate) fn new(client: Client, tools: Vec<(Tool, Action)>) -> Self {
        let (tools, actions): (Vec<_>, Vec<_>) = tools.into_iter().unzip();
        let actions = actions.into_iter().enumerate();
        let actions = actions.map(|(at, action)| (tools[at].name.to_string(), (at, action)));
        Self(Arc::new(Inner {
            client,
            actions: actions.collect(),
            tools,
            calls: Semaphore::new(MAX_CALLS),
            ended: CancellationToken::new(),
        }))
    }

    /// The tools' names, in the order in which they are listed.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.tools.iter().map(|tool| &*tool.name)
    }

    /// How long a call may take at most.
    pub(crate) fn longest_call(&self) -> Duration {
        let all = self.0.actions.values().map(|(_, action)| action.time_ms());
        Duration::from_millis(all.max().unwrap_or_default())
    }

    /// Has all calls cancelled, those that come included. They are answered so.
    pub(crate) fn cancel_calls(&self) {
        self.0.ended.cancel();
    }

    /// Cancels all that runs, and waits until the node knows.
    pub(crate) async fn end(&self) {
        self.cancel_calls();
        // If the node is gone, so is all that ran there.
        let _ = self.0.client.cancel_all().await;
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let us = Implementation::new("wasmrun", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(us)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.0.tools.clone()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let (at, _) = self.0.actions.get(name)?;
        self.0.tools.get(*at).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Inner {
            client,
            actions,
            calls,
            ended,
            ..
        } = &*self.0;
        let Some((_, action)) = actions.get(&*request.name) else {
            let names: Vec<_> = self.names().take(MAX_NAMES_TOLD).collect();
            let more = match self.0.tools.len() > names.len() {
                true => ", …",
                false => "",
            };
            let why = format!(
                "there is no tool {:?}; the tools are {}{more}",
                request.name,
                names.join(", ")
            );
            return Err(ErrorData::invalid_params(why, None));
        };
        let Ok(_place) = calls.try_acquire() else {
            let none = Printed::default();
            let why = format!(
                "{MAX_CALLS} calls are under way, and there may be no more; try again when some have ended"
            );
            return Ok(call::failed(why, &none, &none).into());
        };
        let arguments = request.arguments.unwrap_or_default();
        let cancelled = ended.child_token();
        let calling = async {
            match action {
                Action::Function(function) => function.call(client, arguments, &cancelled).await,
                Action::Python(python) => python.call(client, arguments, &cancelled).await,
            }
        };
        let mut calling = std::pin::pin!(calling);
        let answer = tokio::select! {
            answer = &mut calling => answer,
            () = context.ct.cancelled() => {
                cancelled.cancel();
                calling.await
            }
        };
        Ok(answer.into())
    }
}
