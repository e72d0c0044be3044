//! What a server may tell or ask its client. It is told how far its calls are; it may ask for
//! nothing: no sampling, no files, no questions to people.

use std::collections::HashMap;
use std::sync::Arc;

use rekindle::Json;
use rekindle::tool::ToolContext;
use rmcp::ClientHandler;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProgressNotificationParam, ProgressToken};
use rmcp::service::{NotificationContext, RoleClient};
use serde_json::json;
use tokio::sync::Mutex;

/// The calls that are under way, by the token of their progress.
pub(super) type Calls = Arc<Mutex<HashMap<ProgressToken, ToolContext>>>;

/// Listens to a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Handler {
    pub(super) calls: Calls,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("rekindle", env!("CARGO_PKG_VERSION")))
    }

    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        if let Some(context) = self.calls.lock().await.get(&progress.progress_token) {
            let (done, total, message) = (progress.progress, progress.total, progress.message);
            context.progress(Json::from(json!({"progress": done, "total": total, "message": message})));
        }
    }
}
