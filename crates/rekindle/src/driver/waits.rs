//! Waits of a run: opened with a checkpoint before them, decided by answers or by time.

use std::collections::BTreeSet;
use std::time::Duration;

use rekindle_core::record::{
    CheckpointType, RunState, RunStateKind, WaitCloseReason, WaitClosed, WaitExpired, WaitKind, WaitReminded,
};
use rekindle_core::{BranchId, Condition, EffectId, ErrorKind, Json, Record, Result, WaitId, WaitState};
use serde_json::Value;

use super::{Driver, NewCheckpoint};
use crate::wait::{Verdict, WaitSpec, verdict};

/// What a wait that belongs to a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitPurpose {
    /// May the call be made?
    Approval,
    /// Its answer is the result of the call.
    Result,
    /// Did the call happen?
    InDoubt,
}

impl WaitPurpose {
    fn as_str(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Result => "result",
            Self::InDoubt => "in_doubt",
        }
    }

    /// What an open wait is for.
    pub(crate) fn of(wait: &WaitState) -> Self {
        match wait.opened.extra.get("purpose").and_then(Value::as_str) {
            Some("approval") => Self::Approval,
            Some("in_doubt") => Self::InDoubt,
            _ => Self::Result,
        }
    }
}

impl Driver {
    /// The records that open a wait. Before a wait for a person the position is marked with
    /// `before`, so that one can come back to the moment before the question.
    pub(crate) async fn opening(
        &self,
        spec: &WaitSpec,
        effect: Option<EffectId>,
        purpose: WaitPurpose,
        before: NewCheckpoint,
    ) -> Result<(WaitId, Vec<Record>)> {
        if matches!(spec.kind, WaitKind::Approval | WaitKind::Question) {
            let description = format!("before asking: {}", spec.prompt);
            let kind = CheckpointType::UserCheckpoint;
            self.stage_checkpoint(NewCheckpoint { kind, description, ..before }).await?;
        }
        let wait = WaitId::generate(self.engine().journal().ids(), self.now());
        // People approve what they see, which is what is stored.
        let arguments = spec.arguments.as_ref().map(|arguments| self.redactor().arguments(arguments));
        let mut opened = WaitSpec { arguments, ..spec.clone() }.open(wait.clone(), self.now())?;
        opened.effect = effect;
        opened.run = Some(self.run().clone());
        opened.extra.insert("purpose".into(), purpose.as_str().into());
        Ok((wait, vec![opened.into()]))
    }

    /// Whether anything is on record for a call: that it was intended, or that it waits.
    pub(crate) async fn is_begun(&self, effect: &EffectId) -> bool {
        self.read(|state| {
            let waits = || state.waits().any(|wait| wait.opened.effect.as_ref() == Some(effect));
            state.effect(effect).is_some() || waits()
        })
        .await
    }

    /// The open wait of a call.
    pub(crate) async fn wait_of(&self, effect: &EffectId) -> Option<WaitState> {
        self.read(|state| state.waits().find(|wait| wait.opened.effect.as_ref() == Some(effect)).cloned()).await
    }

    /// The waits that are decided and not closed.
    pub(crate) async fn decided_waits(&self) -> BTreeSet<WaitId> {
        let now = self.now();
        self.read(|state| {
            let decided = state.waits().filter(|wait| verdict(wait, now).is_some());
            decided.map(|wait| wait.opened.wait.clone()).collect()
        })
        .await
    }

    /// Returns what a wait has come to, with the record that closes it; nothing while it is open. That it
    /// expired is on record before anything follows from it, so that no answer is accepted any more.
    pub(crate) async fn verdict(&self, wait: &WaitState) -> Result<Option<(Verdict, Record)>> {
        let expires = matches!(verdict(wait, self.now()), Some((_, true)));
        // Nobody answers a timer, so nobody can be refused.
        let settled = match expires && !wait.expired && wait.opened.kind != WaitKind::Timer {
            true => self.expire(&wait.opened.wait).await?,
            false => Some(wait.clone()),
        };
        let Some(wait) = &settled else { return Ok(None) };
        let Some((verdict, expired)) = verdict(wait, self.now()) else { return Ok(None) };
        let value = match &verdict {
            Verdict::Answered(value) => Some(value.clone()),
            Verdict::Approved { .. } => Some(Json::parse("true")?),
            Verdict::Rejected { .. } => Some(Json::parse("false")?),
            Verdict::Expired => None,
        };
        let reason = if expired { WaitCloseReason::Expired } else { WaitCloseReason::Answered };
        let closed = WaitClosed::new(wait.opened.wait.clone(), reason, value);
        Ok(Some((verdict, closed.into())))
    }

    /// Records that a wait expired, unless an answer is in the inbox: the commit names the end of the
    /// inbox that was read, and an answer names the last record about a wait on this branch. So of an
    /// answer and an expiry that happen together, one is refused. Gives the wait as it is then.
    async fn expire(&self, wait: &WaitId) -> Result<Option<WaitState>> {
        let mut core = self.shared.core.lock().await;
        loop {
            let inbox = self.take_whole_inbox(&mut core).await?;
            let Some(now) = core.state.wait(wait).cloned() else { return Ok(None) };
            if !matches!(verdict(&now, self.now()), Some((_, true))) || now.expired {
                return Ok(Some(now));
            }
            let expired = WaitExpired { wait: wait.clone(), extra: Default::default() };
            match self.commit_if(&mut core, expired.into(), Condition::head(BranchId::inbox(), inbox)).await {
                Err(error) if matches!(error.kind(), ErrorKind::Overtaken { .. }) => {}
                committed => committed?,
            }
        }
    }

    /// Records the reminders that are due.
    pub(crate) async fn remind(&self) -> Result<()> {
        let now = self.now();
        let due = self.read(|state| {
            let due = state.waits().filter(|wait| !wait.reminded && wait.opened.remind_at.is_some_and(|at| at <= now));
            due.map(|wait| wait.opened.wait.clone()).collect::<Vec<_>>()
        });
        let reminded = due.await.into_iter().map(|wait| WaitReminded { wait, extra: Default::default() }.into());
        self.stage(reminded.collect()).await
    }

    /// Whether a wait was decided or has become due since this was last asked: then whoever waits for
    /// it goes on, instead of holding or ending. What nobody takes up is told only once.
    pub(crate) async fn wake(&self) -> Result<bool> {
        self.proceed().await?;
        let waits: Vec<WaitState> = self.read(|state| state.waits().cloned().collect()).await;
        let mut core = self.shared.core.lock().await;
        let mut woken = false;
        for wait in waits {
            let decided = verdict(&wait, self.now()).is_some();
            woken |= decided && core.woken.insert(wait.opened.wait);
        }
        Ok(woken)
    }

    /// Stays until something arrives, a wait is due, or the run is to stop.
    pub(crate) async fn hold(&self) -> Result<()> {
        let news = self.shared.news.notified();
        tokio::pin!(news);
        // Registered before looking, so that what arrives meanwhile is not missed.
        news.as_mut().enable();
        self.remind().await?;
        let unread = [&self.shared.inbox_news, &self.shared.inbox_rest];
        if unread.iter().any(|unread| unread.load(std::sync::atomic::Ordering::SeqCst)) {
            return Ok(());
        }
        let waiting = RunState::new(self.run().clone(), RunStateKind::Waiting);
        self.commit(vec![waiting.into()]).await?;
        self.flush().await?;
        let due = self.next_due().await;
        self.shared.core.lock().await.count_time();
        tokio::select! {
            () = &mut news => {}
            () = self.control().asked() => {}
            () = tokio::time::sleep(due) => {}
        }
        // Waiting is not working.
        self.shared.core.lock().await.counted = std::time::Instant::now();
        self.commit(vec![RunState::new(self.run().clone(), RunStateKind::Running).into()]).await
    }

    /// How long until a wait must be reminded of or expires.
    async fn next_due(&self) -> Duration {
        let now = self.now();
        let times = self.read(|state| {
            let times = state.waits().flat_map(|wait| {
                let remind = wait.opened.remind_at.filter(|_| !wait.reminded);
                [remind, wait.opened.expires_at]
            });
            // One that is due and still there is nobody's business any more.
            times.flatten().filter(|at| *at > now).map(|at| at.since(now)).min()
        });
        times.await.unwrap_or(Duration::from_secs(3_600))
    }
}
