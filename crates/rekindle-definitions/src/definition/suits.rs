//! Which fields of a tool suit which kind of tool.

/// The kinds that a field suits; nothing if it suits all of them.
pub(super) fn suits(field: &str) -> Option<&'static [&'static str]> {
    const COMMANDS: &[&str] = &["command", "shell"];
    const CALLS: &[&str] = &["command", "shell", "http"];
    const TAKES: &[&str] = &["command", "shell", "http", "question"];
    const WORKS: &[&str] = &["command", "shell", "http", "agent", "plan", "graph"];
    match field {
        "output" | "directory" | "stdin" | "environment" | "secret_environment" | "accept_exit_codes"
        | "check_command" => Some(COMMANDS),
        "writes" | "in_doubt" | "retry" => Some(CALLS),
        "parameters" | "version" => Some(TAKES),
        "timeout" | "concurrency" | "sequential" | "approval" | "risky" | "max_result_bytes" => Some(WORKS),
        _ => None,
    }
}
