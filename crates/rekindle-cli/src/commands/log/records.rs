//! `rekindle log --records`: what the journal says, one record a line.

use rekindle::core::Seq;
use rekindle::operations::{self, RecordPage, RecordsOptions};
use rekindle::{BranchId, Engine, SessionKey};

use crate::app::App;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::ui::spans::Spans;
use crate::ui::{style, time};
use crate::words::{name_of, next, record};

/// Lists records: from `from` on, or the last `limit`.
pub async fn list(
    app: &App,
    engine: &Engine,
    session: &SessionKey,
    branch: Option<BranchId>,
    from: Option<u64>,
    limit: usize,
) -> Outcome {
    let info = engine.journal().open(session).await?;
    let of = info.branch(branch.as_ref().unwrap_or(&info.current))?;
    let last = Seq(of.head.seq.0.saturating_sub(limit as u64).saturating_add(1));
    let from = from.map(Seq).unwrap_or_else(|| last.max(of.first_own()));
    let page = operations::records(engine, session, &RecordsOptions { branch, from, limit }).await?;
    if app.ui.is_json() {
        app.ui.json(&page)?;
        return Ok(Exit::Ok);
    }
    lines(&page, app.ui.table_width()).iter().try_for_each(|line| app.ui.line(line))?;
    if let Some(parent) = &page.parent
        && from <= of.first_own()
    {
        app.ui.remark(format!("{}what was before stands on {parent}{}", style::DIM, style::RESET));
    }
    if let Some(more) = page.next {
        let number = more.to_string();
        let words = ["log", session.id.as_str(), "--records", "--branch", page.branch.as_str(), "--from", &number];
        app.ui.remark(format!("{}more: {}{}", style::DIM, next::line(app, words), style::RESET));
    }
    Ok(Exit::Ok)
}

fn lines(page: &RecordPage, columns: usize) -> Vec<String> {
    let seq = page.records.last().map_or(1, |stored| stored.position.seq.to_string().len());
    let kind = page.records.iter().map(|stored| stored.record.kind().len()).max().unwrap_or(0);
    let mut lines: Vec<(Seq, String)> = Vec::new();
    for stored in &page.records {
        let mut spans = Spans::new().styled(format!("{:>seq$}  ", stored.position.seq.0), style::NAME);
        if columns >= 80 {
            spans = spans.styled(format!("{}  ", time::short(stored.at)), style::DIM);
        }
        let (kind, room) = if columns >= 80 { (kind, 400) } else { (0, 400) };
        let spans = spans
            .plain(format!("{:<kind$}  ", stored.record.kind()))
            .styled(crate::ui::fit(&record::summary(&stored.record), room), style::DIM);
        lines.push((stored.position.seq, spans.line(columns)));
    }
    for damage in &page.damage {
        let text = format!("{}–{} {}: {}", damage.first, damage.last, name_of(&damage.kind), damage.detail);
        lines.push((damage.first, Spans::new().styled(text, style::BAD).line(columns)));
    }
    lines.sort_by_key(|(seq, _)| *seq);
    lines.into_iter().map(|(_, line)| line).collect()
}
