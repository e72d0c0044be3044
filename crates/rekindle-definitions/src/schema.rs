//! The published JSON Schemas of files.

use serde_json::Value;

use crate::form::{AgentFile, GraphFile, PlanFile, ScriptForm, root_schema};

/// A kind of file that has a JSON Schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaName {
    /// The files of agents.
    Agent,
    /// The files of plans.
    Plan,
    /// The files of graphs.
    Graph,
    /// The scripts of scripted models.
    Script,
}

/// Every kind of file that has a JSON Schema, by name.
pub fn schema_names() -> [(&'static str, SchemaName); 4] {
    [
        ("agent", SchemaName::Agent),
        ("plan", SchemaName::Plan),
        ("graph", SchemaName::Graph),
        ("script", SchemaName::Script),
    ]
}

/// The JSON Schema of a kind of file, complete in itself.
///
/// ```
/// use rekindle_definitions::{SchemaName, schema};
/// let agent = schema(SchemaName::Agent);
/// assert_eq!(agent["properties"]["name"]["type"], "string");
/// ```
pub fn schema(name: SchemaName) -> Value {
    match name {
        SchemaName::Agent => root_schema::<AgentFile>("agent"),
        SchemaName::Plan => root_schema::<PlanFile>("plan"),
        SchemaName::Graph => root_schema::<GraphFile>("graph"),
        SchemaName::Script => root_schema::<ScriptForm>("script"),
    }
}
