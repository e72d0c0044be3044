//! Retention: one policy, and a pure planner that says what may go, what stays and why.
//!
//! Nothing here removes anything. [`plan`] turns facts into a [`PrunePlan`]; a caller shows it
//! (a dry run) or has [`Journal::apply_prune`](crate::Journal::apply_prune) carry it out.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{BranchId, CheckpointId, RunId};
use crate::position::{Position, Seq};
use crate::time::Timestamp;

/// A reason to keep checkpoints. What any rule keeps is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rule {
    /// The newest of each branch.
    LatestOnly,
    /// The newest `n` of each branch.
    LastN(usize),
    /// All.
    FullHistory,
    /// Those made within this time.
    MaxAge(Duration),
    /// The newest whose history since fits this many bytes.
    MaxBytes(u64),
    /// Those with this tag.
    Tagged(String),
}

/// What to keep. An empty policy keeps only what is protected.
///
/// ```
/// use rekindle_core::retention::{Policy, Rule};
/// let policy = Policy::new([Rule::LastN(5), Rule::Tagged("release".into())]).with_clean_only(true);
/// # let _ = policy;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    rules: Vec<Rule>,
    clean_only: bool,
}

impl Policy {
    /// Keeps what any of `rules` keeps.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self { rules: rules.into_iter().collect(), clean_only: false }
    }

    /// Whether the rules count clean checkpoints only.
    #[must_use]
    pub fn with_clean_only(mut self, clean_only: bool) -> Self {
        self.clean_only = clean_only;
        self
    }
}

/// What the planner must know of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointFacts {
    /// The checkpoint.
    pub id: CheckpointId,
    /// Its record.
    pub seq: Seq,
    /// The last record up to which history could be compacted with this checkpoint still exact.
    pub trim_to: Seq,
    /// When it was made.
    pub at: Timestamp,
    /// Bytes of history from here to the branch's head.
    pub bytes_since: u64,
    /// Whether nothing failed on the way to it.
    pub clean: bool,
    /// Whether it is pinned.
    pub pinned: bool,
    /// Its tags.
    pub tags: Vec<String>,
    /// The run that made it.
    pub run: Option<RunId>,
    /// Whether it marks a turn of a conversation: the next turn goes on from there, so a finished
    /// one needs no mark of its own.
    pub turn: bool,
}

/// What the planner must know of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkFacts {
    /// The record it starts at.
    pub seq: Seq,
    /// The last record up to which history could be compacted with the fork still whole.
    pub trim_to: Seq,
}

/// What the planner must know of a branch.
#[derive(Clone, Debug, PartialEq)]
pub struct BranchFacts {
    /// The branch.
    pub branch: BranchId,
    /// The records its own history begins after: its fork point or its base.
    pub floor: Seq,
    /// Its last record.
    pub head: Seq,
    /// Where other branches without a base of their own were forked from it.
    pub forks: Vec<ForkFacts>,
    /// The run that is not finished, if there is one.
    pub unfinished_run: Option<RunId>,
    /// Whether somebody else holds its lease.
    pub leased: bool,
    /// Its checkpoints, oldest first.
    pub checkpoints: Vec<CheckpointFacts>,
}

/// Why something stays.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// It is the newest of its branch.
    Newest,
    /// It is the newest of a run that nothing goes on from.
    NewestOfRun,
    /// It belongs to a run that is not finished.
    UnfinishedRun,
    /// It is pinned.
    Pinned,
    /// A branch was forked from it.
    ForkSource,
    /// A rule of the policy keeps it.
    Rule(String),
    /// Somebody holds the lease.
    Leased,
    /// It waits for a person, a signal or a time.
    Waiting,
    /// It changed lately.
    Active,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newest => f.write_str("newest of its branch"),
            Self::NewestOfRun => f.write_str("newest of its run"),
            Self::UnfinishedRun => f.write_str("its run is not finished"),
            Self::Pinned => f.write_str("pinned"),
            Self::ForkSource => f.write_str("a branch was forked from it"),
            Self::Rule(rule) => write!(f, "kept by {rule}"),
            Self::Leased => f.write_str("somebody holds the lease"),
            Self::Waiting => f.write_str("waits for an answer"),
            Self::Active => f.write_str("changed lately"),
        }
    }
}

/// A checkpoint in a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Planned {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Where it is.
    pub position: Position,
    /// Why it stays; empty for one that goes.
    pub reasons: Vec<Reason>,
}

/// Up to where the history of a branch will be compacted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trim {
    /// The branch.
    pub branch: BranchId,
    /// The last record that goes into its base.
    pub through: Seq,
}

/// What pruning a session would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PrunePlan {
    /// Checkpoints that go.
    pub remove: Vec<Planned>,
    /// Checkpoints that stay, and why.
    pub keep: Vec<Planned>,
    /// History that is compacted.
    pub trims: Vec<Trim>,
    /// Branches whose history stays whole, and why.
    pub untouched: Vec<(BranchId, Reason)>,
}

impl PrunePlan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.trims.is_empty()
    }
}

/// Plans what `policy` removes from a session's branches.
pub fn plan(policy: &Policy, branches: &[BranchFacts], now: Timestamp) -> PrunePlan {
    let mut plan = PrunePlan::default();
    for branch in branches {
        let protected = protected(branch);
        let kept_by_rules = kept_by_rules(policy, branch, now);
        let mut earliest = branch.forks.iter().map(|fork| fork.trim_to).min();
        for (index, checkpoint) in branch.checkpoints.iter().enumerate() {
            let mut reasons: BTreeSet<Reason> = protected.get(&index).cloned().unwrap_or_default();
            reasons.extend(kept_by_rules.get(&index).cloned().unwrap_or_default());
            let planned = Planned {
                checkpoint: checkpoint.id.clone(),
                position: Position::new(branch.branch.clone(), checkpoint.seq),
                reasons: reasons.into_iter().collect(),
            };
            if planned.reasons.is_empty() {
                plan.remove.push(planned);
            } else {
                earliest = Some(earliest.map_or(checkpoint.trim_to, |seq| seq.min(checkpoint.trim_to)));
                plan.keep.push(planned);
            }
        }
        match earliest {
            _ if branch.leased => plan.untouched.push((branch.branch.clone(), Reason::Leased)),
            Some(through) if through > branch.floor => {
                plan.trims.push(Trim { branch: branch.branch.clone(), through });
            }
            _ => {}
        }
    }
    plan
}

/// What no policy may remove.
fn protected(branch: &BranchFacts) -> HashMap<usize, BTreeSet<Reason>> {
    let mut protected: HashMap<usize, BTreeSet<Reason>> = HashMap::new();
    let mut newest_of_run = HashMap::new();
    for (index, checkpoint) in branch.checkpoints.iter().enumerate() {
        if branch.leased {
            protected.entry(index).or_default().insert(Reason::Leased);
        }
        if checkpoint.pinned {
            protected.entry(index).or_default().insert(Reason::Pinned);
        }
        if branch.forks.iter().any(|fork| fork.seq == checkpoint.seq) {
            protected.entry(index).or_default().insert(Reason::ForkSource);
        }
        if checkpoint.run.is_some() && checkpoint.run == branch.unfinished_run {
            protected.entry(index).or_default().insert(Reason::UnfinishedRun);
        }
        newest_of_run.insert(checkpoint.run.as_ref(), index);
    }
    for (run, index) in newest_of_run {
        if run.is_some() && !branch.checkpoints[index].turn {
            protected.entry(index).or_default().insert(Reason::NewestOfRun);
        }
    }
    if let Some(newest) = branch.checkpoints.len().checked_sub(1) {
        protected.entry(newest).or_default().insert(Reason::Newest);
    }
    protected
}

/// What the rules of the policy keep.
fn kept_by_rules(policy: &Policy, branch: &BranchFacts, now: Timestamp) -> HashMap<usize, BTreeSet<Reason>> {
    let mut kept: HashMap<usize, BTreeSet<Reason>> = HashMap::new();
    let counted = branch.checkpoints.iter().enumerate().rev();
    let counted = counted.filter(|(_, checkpoint)| checkpoint.clean || !policy.clean_only);
    for (age, (index, checkpoint)) in counted.enumerate() {
        for rule in &policy.rules {
            let (keeps, name) = match rule {
                Rule::LatestOnly => (age == 0, "latest_only".to_owned()),
                Rule::LastN(n) => (age < *n, format!("last_n({n})")),
                Rule::FullHistory => (true, "full_history".to_owned()),
                Rule::MaxAge(most) => (now.since(checkpoint.at) <= *most, format!("max_age({most:?})")),
                Rule::MaxBytes(most) => (checkpoint.bytes_since <= *most, format!("max_bytes({most})")),
                Rule::Tagged(tag) => (checkpoint.tags.contains(tag), format!("tag `{tag}`")),
            };
            if keeps {
                kept.entry(index).or_default().insert(Reason::Rule(name));
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(seq: u64) -> CheckpointFacts {
        CheckpointFacts {
            id: CheckpointId::new(format!("c{seq}")).unwrap(),
            seq: Seq(seq),
            trim_to: Seq(seq),
            at: Timestamp(seq * 1_000_000),
            bytes_since: (100 - seq) * 10,
            clean: seq != 50,
            pinned: false,
            tags: Vec::new(),
            run: None,
            turn: false,
        }
    }

    fn branch() -> BranchFacts {
        BranchFacts {
            branch: BranchId::main(),
            floor: Seq(0),
            head: Seq(55),
            forks: Vec::new(),
            unfinished_run: None,
            leased: false,
            checkpoints: [10, 20, 30, 40, 50].map(checkpoint).to_vec(),
        }
    }

    fn check(policy: Policy, branch: BranchFacts, kept: &[u64], trim: Option<u64>) {
        let plan = plan(&policy, &[branch], Timestamp(60_000_000));
        let found: Vec<u64> = plan.keep.iter().map(|planned| planned.position.seq.0).collect();
        assert_eq!(found, kept, "{plan:?}");
        assert_eq!(plan.trims.first().map(|trim| trim.through.0), trim, "{plan:?}");
        assert_eq!(plan.keep.len() + plan.remove.len(), 5);
    }

    #[test]
    fn each_rule_keeps_what_it_says() {
        check(Policy::default(), branch(), &[50], Some(50));
        check(Policy::new([Rule::LatestOnly]), branch(), &[50], Some(50));
        check(Policy::new([Rule::LastN(2)]), branch(), &[40, 50], Some(40));
        check(Policy::new([Rule::LastN(2)]).with_clean_only(true), branch(), &[30, 40, 50], Some(30));
        check(Policy::new([Rule::FullHistory]), branch(), &[10, 20, 30, 40, 50], Some(10));
        check(Policy::new([Rule::MaxAge(Duration::from_secs(25))]), branch(), &[40, 50], Some(40));
        check(Policy::new([Rule::MaxBytes(700)]), branch(), &[30, 40, 50], Some(30));
    }

    #[test]
    fn rules_add_up_and_protection_wins() {
        let mut facts = branch();
        facts.checkpoints[0].pinned = true;
        facts.checkpoints[1].tags.push("release".into());
        check(Policy::new([Rule::LatestOnly, Rule::Tagged("release".into())]), facts, &[10, 20, 50], Some(10));
    }

    #[test]
    fn fork_sources_limit_the_trim_even_between_checkpoints() {
        let fork = |seq, trim_to| vec![ForkFacts { seq: Seq(seq), trim_to: Seq(trim_to) }];
        check(Policy::default(), BranchFacts { forks: fork(20, 20), ..branch() }, &[20, 50], Some(20));
        check(Policy::default(), BranchFacts { forks: fork(25, 23), ..branch() }, &[50], Some(23));
    }

    #[test]
    fn unfinished_runs_and_the_newest_of_each_run_stay() {
        let mut facts = branch();
        let run = |name: &str| Some(RunId::new(name).unwrap());
        for (index, name) in ["a", "a", "b", "c", "c"].into_iter().enumerate() {
            facts.checkpoints[index].run = run(name);
        }
        facts.unfinished_run = run("c");
        check(Policy::new([Rule::LatestOnly]), facts.clone(), &[20, 30, 40, 50], Some(20));
        // The turns of a conversation go on from each other.
        facts.checkpoints.iter_mut().for_each(|checkpoint| checkpoint.turn = true);
        check(Policy::new([Rule::LatestOnly]), facts, &[40, 50], Some(40));
    }

    #[test]
    fn leased_branches_and_pruned_floors_are_left_alone() {
        let plan_of = |facts| plan(&Policy::default(), &[facts], Timestamp(0));
        let leased = plan_of(BranchFacts { leased: true, ..branch() });
        assert_eq!((leased.trims.len(), leased.untouched.len(), leased.remove.len()), (0, 1, 0));
        assert!(plan_of(BranchFacts { floor: Seq(50), ..branch() }).trims.is_empty());
        assert!(plan_of(BranchFacts { checkpoints: Vec::new(), ..branch() }).is_empty());
    }
}
