//! The binary `rekindle`: durable agent work on the command line. It reads the arguments, the
//! environment and the configuration, and calls `rekindle::operations`; what it adds is words.

mod app;
mod cli;
mod clock;
mod commands;
mod complete;
mod exit;
mod failure;
mod files;
mod key_service;
mod owner;
mod reference;
mod run;
mod secrets;
mod settings;
mod ui;
mod words;

use std::process::ExitCode;

/// Servers and workers allocate and free on all threads at once.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::answer_completions();
    let cli = cli::parse();
    let ui = ui::Ui::new(&cli.global);
    let exit = match app::start(cli, ui.clone()) {
        Ok(exit) => exit,
        Err(failure) => failure.tell(&ui),
    };
    exit.into()
}
