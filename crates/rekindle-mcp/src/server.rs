//! The server: what it is made of, and the handler that only passes requests on.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use rekindle::{Engine, Identity, Result, SessionKey};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams, CompleteResult, GetTaskParams,
    GetTaskResult, Implementation, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig, SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};

use crate::agents::Agents;
use crate::error::protocol_error;
use crate::subscriptions::Connection;
use crate::tools::{self, Caller, Catalogue};
use crate::{resources, subscriptions, tasks, watch};

const INSTRUCTIONS: &str = "Rekindle keeps the work of agents in durable sessions. Find unfinished ones with \
    `list_resumable_sessions` and look at them with `list_session_checkpoints` and `inspect_checkpoint`. Start work \
    with `run_agent` or go on with `resume_session`, then ask `get_run` until it has ended; if it waits, ask the user \
    and give the answer with `answer_wait`. Save and load your own state with `checkpoint_save` and `checkpoint_load`. \
    Some of these may not be offered here.";

/// Serves the sessions of one engine, in its namespace, to MCP clients. Cheap to clone; every
/// connection may have a clone of its own.
///
/// ```
/// use rekindle::Engine;
/// use rekindle_mcp::McpServer;
/// use rekindle_mcp::rmcp::ServerHandler as _;
///
/// // For real: Engine::open("sqlite:./agents.db")?, served with rmcp's `serve_server` on a transport of it.
/// let server = McpServer::builder(Engine::memory()?).author("assistant").read_only().build();
/// assert!(server.get_tool("checkpoint_load").is_some());
/// assert!(server.get_tool("checkpoint_save").is_none()); // that one changes something
/// # Ok::<(), rekindle::Error>(())
/// ```
pub struct McpServer {
    core: Arc<Core>,
    connection: Connection,
}

impl Clone for McpServer {
    /// The same server for another connection, which subscribes to what it likes.
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), connection: Connection::default() }
    }
}

/// The part of the server that one caller works with.
pub(crate) struct Core {
    /// The name on record, that of the identity.
    pub(crate) author: String,
    pub(crate) identity: Identity,
    shared: Arc<Shared>,
}

impl Core {
    fn new(identity: Identity, shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self { author: identity.author.clone(), identity, shared })
    }
}

impl Deref for Core {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// The part of the server that all callers share.
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) agents: Option<Arc<dyn Agents>>,
    pub(crate) read_only: bool,
    pub(crate) watch: watch::Watch,
    catalogue: Catalogue,
}

impl Core {
    /// The full name of a session of the engine's namespace.
    pub(crate) fn key(&self, id: &str) -> Result<SessionKey> {
        self.engine.key(id)
    }

    /// An error if nothing may be changed here.
    fn check_writable(&self) -> Result<(), ErrorData> {
        match self.read_only {
            true => Err(ErrorData::invalid_request("this server is read-only; it changes and runs nothing", None)),
            false => Ok(()),
        }
    }
}

impl McpServer {
    /// Over an engine; it says the namespace.
    pub fn builder(engine: Engine) -> McpServerBuilder {
        McpServerBuilder { engine, identity: "mcp".into(), agents: None, read_only: false }
    }

    /// The same server for a caller of that identity: it is on record for what the caller does.
    #[must_use]
    pub fn acting_for(&self, identity: Identity) -> Self {
        Self { core: Core::new(identity, Arc::clone(&self.core.shared)), connection: Connection::default() }
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServer").field("engine", &self.core.engine).finish_non_exhaustive()
    }
}

/// Builds a server.
pub struct McpServerBuilder {
    engine: Engine,
    identity: Identity,
    agents: Option<Arc<dyn Agents>>,
    read_only: bool,
}

impl McpServerBuilder {
    /// Who records say did it; `mcp` unless this says otherwise.
    #[must_use]
    pub fn author(mut self, author: impl Into<Identity>) -> Self {
        self.identity = author.into();
        self
    }

    /// What can be started by name.
    #[must_use]
    pub fn agents(mut self, agents: Arc<dyn Agents>) -> Self {
        self.agents = Some(agents);
        self
    }

    /// Without the tools that change anything.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// The server.
    pub fn build(self) -> McpServer {
        let Self { engine, identity, agents, read_only } = self;
        let runs = engine.journal().store().queue().is_some();
        let catalogue = Catalogue::new(read_only, runs, agents.as_ref().map(|agents| agents.list()).as_deref());
        let watch = watch::Watch::new(engine.clone());
        let shared = Arc::new(Shared { engine, agents, read_only, watch, catalogue });
        McpServer { core: Core::new(identity, shared), connection: Connection::default() }
    }
}

impl fmt::Debug for McpServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServerBuilder").field("read_only", &self.read_only).finish_non_exhaustive()
    }
}

// What may be awaited is boxed: a request of any kind is moved about as if it were the largest of all.
impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .enable_completions()
            .enable_tasks()
            .build();
        let implementation = Implementation::new("rekindle", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(implementation).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(self.core.catalogue.list())
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.core.catalogue.tool(name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        // Earlier revisions have no results that are tasks, whatever a client declares.
        let speaks = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        let tasks = speaks && context.client_capabilities().is_some_and(|known| known.supports_tasks());
        let caller = Caller { tasks };
        tools::call(&self.core, &self.core.catalogue, request, caller).await
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        Box::pin(resources::list(&self.core, cursor)).await.map_err(|error| protocol_error(&error))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(resources::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let read = Box::pin(resources::read(&self.core, &request.uri)).await;
        read.map(ReadResourceResponse::from).map_err(|error| protocol_error(&error))
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let completed = Box::pin(resources::complete(&self.core, request)).await;
        completed.map(CompleteResult::new).map_err(|error| protocol_error(&error))
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(subscriptions::accepted(requested))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        Box::pin(subscriptions::listen(&self.core.watch, context)).await.map_err(|error| protocol_error(&error))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        // A store that cannot be reached now refuses requests too, with the reason.
        let _ = Box::pin(self.connection.begin(&self.core.watch, context.peer)).await;
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let subscribed = Box::pin(self.connection.subscribe(&self.core.watch, &request.uri)).await;
        subscribed.map_err(|error| protocol_error(&error))
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.connection.unsubscribe(&request.uri).map_err(|error| protocol_error(&error))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        Box::pin(tasks::get(&self.core, request)).await
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.core.check_writable()?;
        Box::pin(tasks::update(&self.core, request)).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.core.check_writable()?;
        Box::pin(tasks::cancel(&self.core, request)).await
    }
}
