//! The stored form of a high-water mark, and the rules of comparing and advancing it.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::id::{BranchId, SessionKey};
use crate::position::{Hash, Head, Seq};
use crate::record::is_default;
use crate::session::{BranchInfo, Damage, DamageKind, SessionInfo};

/// The bytes of branches that a mark holds: more would not fit into a value. Branches beyond are not
/// protected.
const MOST_BYTES: usize = 60 << 10;
/// What the entry of a branch takes beside its name.
const ENTRY_BYTES: usize = 140;

/// How far an entry of a mark may be relied on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Written, and the journal was seen to have it afterwards: it must be there.
    #[default]
    Kept,
    /// Written, but not confirmed by another look at the journal. It may have been removed between
    /// the commit and the writing of the mark.
    New,
    /// About to be removed or replaced on purpose.
    Leaving,
}

/// The highest head of one branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchMark {
    /// The head.
    #[serde(flatten)]
    pub head: Head,
    /// How far it may be relied on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub standing: Standing,
}

/// The highest heads of a session.
///
/// Only what is [`Standing::Kept`] counts when it is compared, so that no crash between a change of the
/// journal and that of its mark looks like a rollback:
///
/// * an entry is `New` until a look at the journal *after* it was written has shown that it is there;
/// * an entry becomes `Leaving` *before* what it names is removed.
///
/// Marks are changed by comparing their bytes, and [`Mark::number`] makes each form of one unique.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Counts the changes.
    #[serde(rename = "n")]
    pub number: u64,
    /// The start of the session's hash chain.
    pub genesis: Hash,
    /// How far the session itself may be relied on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub standing: Standing,
    /// Where each branch ended.
    pub branches: BTreeMap<BranchId, BranchMark>,
}

impl Mark {
    /// The mark of a session as it is, not confirmed yet.
    pub fn of(info: &SessionInfo) -> Self {
        let mut mark =
            Self { number: 1, genesis: info.header.genesis, standing: Standing::New, branches: BTreeMap::new() };
        for branch in &info.branches {
            mark.add(branch, Standing::New);
        }
        mark
    }

    /// Reads a mark; nothing if it is none, as after a power cut: marks are written without a sync.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// The stored form.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("a mark has only texts and numbers").into()
    }

    /// Returns whether the session must be there.
    pub fn is_kept(&self) -> bool {
        self.standing == Standing::Kept
    }

    /// The heads that must be there; none if the session need not be.
    pub fn heads(&self) -> BTreeMap<BranchId, Head> {
        let kept = self.branches.iter().filter(|(_, mark)| self.is_kept() && mark.standing == Standing::Kept);
        kept.map(|(branch, mark)| (branch.clone(), mark.head)).collect()
    }

    /// What is missing from a session as it is. The mark must have been read first: it is never ahead
    /// of the journal, but the journal may grow in between.
    pub fn compare(&self, info: &SessionInfo) -> Vec<Damage> {
        if self.standing == Standing::Leaving {
            return Vec::new();
        }
        if self.genesis != info.header.genesis {
            if !self.is_kept() {
                return Vec::new();
            }
            let last = self.branches.get(&BranchId::main()).map_or(Seq(1), |mark| mark.head.seq.max(Seq(1)));
            let detail = "another session stands under this name; the one that was there is gone".to_owned();
            return vec![damage(BranchId::main(), Seq(1), last, detail)];
        }
        let found: HashMap<_, _> = info.branches.iter().map(|found| (&found.branch, found)).collect();
        let kept = self
            .branches
            .iter()
            .filter(|(branch, mark)| mark.standing == Standing::Kept && !is_unreadable(info, branch, mark.head.seq));
        kept.filter_map(|(branch, mark)| missing(branch, mark.head, found.get(branch).copied())).collect()
    }

    /// The mark after a look at the session, made after `current` was read: higher, or confirmed.
    /// Nothing if it stays as it is. What contradicts the session stays too: a mark is never lowered
    /// by looking. `created` says that the caller has just created the session, so whatever stands
    /// in the mark was of an earlier one.
    pub fn advanced(current: Option<&Self>, info: &SessionInfo, created: bool) -> Option<Self> {
        let Some(current) = current else { return Some(Self::of(info)) };
        let other = current.genesis != info.header.genesis;
        let contradicted = other || current.standing == Standing::Leaving || !current.compare(info).is_empty();
        if contradicted {
            // What is about to be removed is left to the one who does.
            let leaving = current.standing == Standing::Leaving;
            let replaced = (created && !leaving) || (other && !current.is_kept());
            return replaced.then(|| Self { number: current.number + 1, ..Self::of(info) });
        }
        let mut next = Self { standing: Standing::Kept, ..current.clone() };
        next.branches.retain(|branch, mark| mark.standing != Standing::New || info.branch(branch).is_ok());
        for branch in &info.branches {
            match next.branches.get_mut(&branch.branch) {
                None => next.add(branch, Standing::New),
                Some(mark) if mark.standing == Standing::Leaving => {}
                Some(mark) if mark.standing == Standing::New || branch.head.seq > mark.head.seq => {
                    *mark = BranchMark { head: branch.head, standing: Standing::Kept };
                }
                Some(_) => {}
            }
        }
        next.number += 1;
        (Self { number: current.number, ..next.clone() } != *current).then_some(next)
    }

    /// The mark with these heads of branches it has confirmed; nothing if it has not confirmed all of
    /// them, so that the session has to be looked at.
    pub fn raised(&self, heads: &BTreeMap<BranchId, Head>) -> Option<Self> {
        if !self.is_kept() {
            return None;
        }
        let mut next = Self { number: self.number + 1, ..self.clone() };
        for (branch, head) in heads {
            let mark = next.branches.get_mut(branch).filter(|mark| mark.standing == Standing::Kept)?;
            if head.seq > mark.head.seq {
                mark.head = *head;
            }
        }
        Some(next)
    }

    /// Returns whether another look at the journal would confirm something.
    pub fn is_confirmed(&self) -> bool {
        self.standing != Standing::New && self.branches.values().all(|mark| mark.standing != Standing::New)
    }

    /// The mark before a session, or one branch of it, is removed on purpose; nothing if it says so
    /// already. It is written even if nothing was marked: a confirmation that is under way fails then.
    pub fn departing(current: Option<&Self>, info: &SessionInfo, branch: Option<&BranchId>) -> Option<Self> {
        let known = current.filter(|mark| mark.genesis == info.header.genesis);
        let number = current.map_or(0, |mark| mark.number) + 1;
        let Some(branch) = branch else {
            let empty = || Self { branches: BTreeMap::new(), ..Self::of(info) };
            let next = Self { number, standing: Standing::Leaving, ..known.cloned().unwrap_or_else(empty) };
            return known.is_none_or(|known| known.standing != Standing::Leaving).then_some(next);
        };
        // A mark of another session is not about this branch.
        let mut next = match (current, known) {
            (Some(_), None) => return None,
            (_, known) => known.cloned().unwrap_or_else(|| Self::of(info)),
        };
        let head = info.branch(branch).ok()?.head;
        let leaving = BranchMark { head, standing: Standing::Leaving };
        let mark = next.branches.entry(branch.clone()).or_insert(leaving);
        mark.standing = Standing::Leaving;
        next.number = number;
        (Some(&Self { number: number - 1, ..next.clone() }) != current).then_some(next)
    }

    /// The mark after a removal was refused.
    pub fn staying(&self, branch: Option<&BranchId>) -> Option<Self> {
        let mut next = Self { number: self.number + 1, ..self.clone() };
        let standing = match branch {
            None => &mut next.standing,
            Some(branch) => &mut next.branches.get_mut(branch)?.standing,
        };
        // Unconfirmed: the next look at the journal says whether it is there.
        let was = std::mem::replace(standing, Standing::New);
        (was == Standing::Leaving).then_some(next)
    }

    /// The mark after a branch was removed.
    pub fn without(&self, branch: &BranchId) -> Option<Self> {
        let mut next = Self { number: self.number + 1, ..self.clone() };
        next.branches.remove(branch).map(|_| next)
    }

    /// The mark of a session that is gone, before another of that name is created: of no session.
    pub fn vacated(&self) -> Self {
        Self { number: self.number + 1, genesis: Hash::default(), standing: Standing::Leaving, ..self.clone() }
    }

    fn add(&mut self, branch: &BranchInfo, standing: Standing) {
        // A character of a name takes at most two bytes: ids have no control characters.
        let bytes = |id: &BranchId| 2 * id.as_str().len() + ENTRY_BYTES;
        let full = self.branches.len() > MOST_BYTES / ENTRY_BYTES;
        if !full && self.branches.keys().map(bytes).sum::<usize>() + bytes(&branch.branch) <= MOST_BYTES {
            self.branches.insert(branch.branch.clone(), BranchMark { head: branch.head, standing });
        }
    }
}

/// Returns whether the store itself says that a record is there and cannot be read: then it is not gone.
fn is_unreadable(info: &SessionInfo, branch: &BranchId, seq: Seq) -> bool {
    let about_bytes = |kind| matches!(kind, DamageKind::Checksum | DamageKind::Format | DamageKind::Version);
    info.damage.iter().any(|damage| about_bytes(damage.kind) && damage.branch == *branch && damage.last >= seq)
}

/// What is wrong with a branch that once ended at `head`.
fn missing(branch: &BranchId, head: Head, found: Option<&BranchInfo>) -> Option<Damage> {
    let Some(found) = found else {
        let detail = format!("the branch was there, up to record {}, and is gone", head.seq);
        return Some(damage(branch.clone(), Seq(1), head.seq.max(Seq(1)), detail));
    };
    if found.head.seq < head.seq {
        let detail = format!("record {} was there, but the branch ends at {}", head.seq, found.head.seq);
        return Some(damage(branch.clone(), found.head.seq.next(), head.seq, detail));
    }
    (found.head.seq == head.seq && found.head.hash != head.hash).then(|| replaced(branch, head.seq))
}

/// The damage of a record that is another than the one that was there.
pub fn replaced(branch: &BranchId, seq: Seq) -> Damage {
    damage(branch.clone(), seq, seq, format!("record {seq} is another than the one that was there"))
}

fn damage(branch: BranchId, first: Seq, last: Seq, detail: String) -> Damage {
    Damage::new(DamageKind::RolledBack, branch, first, last, detail)
}

/// What people are told of a session that a mark names and that is gone.
pub fn gone(session: &SessionKey, heads: &BTreeMap<BranchId, Head>) -> String {
    let main = heads.get(&BranchId::main()).map_or(Seq::ZERO, |head| head.seq);
    format!("session `{}` was there, up to record {main} of `main`, and is gone", session.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::SessionHeader;
    use crate::store::NewSession;
    use crate::time::Timestamp;

    fn head(seq: u64) -> Head {
        Head { seq: Seq(seq), hash: Hash::of(&seq.to_le_bytes()) }
    }

    /// A session whose `main` ends at `seq`.
    fn session(genesis: &[u8], seq: u64) -> SessionInfo {
        let key: SessionKey = "s".parse::<crate::id::SessionId>().unwrap().into();
        let header = SessionHeader { genesis: Hash::of(genesis), ..SessionHeader::new(key) };
        let mut info = NewSession::new(header).session_info(Timestamp(1));
        info.branches[0].head = head(seq);
        info
    }

    fn with_fork(mut info: SessionInfo, seq: u64) -> SessionInfo {
        let fork = BranchInfo { branch: "fork".parse().unwrap(), head: head(seq), ..info.branches[0].clone() };
        info.branches.push(fork);
        info
    }

    /// The mark of a session that was looked at until everything was confirmed.
    fn kept(info: &SessionInfo) -> Mark {
        let mut mark = Mark::of(info);
        while let Some(next) = Mark::advanced(Some(&mark), info, false) {
            mark = next;
        }
        assert!(mark.is_confirmed() && mark.is_kept());
        mark
    }

    #[test]
    fn only_what_was_confirmed_is_missed() {
        let fork: BranchId = "fork".parse().unwrap();
        let check = |mark: &Mark, info: &SessionInfo, expected: &[(&str, u64, u64)]| {
            let found = mark.compare(info);
            assert!(found.iter().all(|damage| damage.kind == DamageKind::RolledBack));
            let found: Vec<_> =
                found.iter().map(|damage| (damage.branch.as_str(), damage.first.0, damage.last.0)).collect();
            assert_eq!(found, expected, "{mark:?} and {info:?}");
        };
        let whole = with_fork(session(b"a", 7), 5);
        let mark = kept(&whole);
        check(&mark, &whole, &[]);
        check(&mark, &with_fork(session(b"a", 9), 6), &[]);
        check(&mark, &with_fork(session(b"a", 4), 5), &[("main", 5, 7)]);
        check(&mark, &session(b"a", 7), &[("fork", 1, 5)]);
        check(&mark, &session(b"b", 9), &[("main", 1, 7)]);
        let mut rewritten = whole.clone();
        rewritten.branches[0].head.hash = Hash::of(b"other");
        check(&mark, &rewritten, &[("main", 7, 7)]);
        // Not confirmed, or on its way out.
        check(&Mark::of(&whole), &session(b"a", 4), &[]);
        check(&Mark::of(&whole), &session(b"b", 4), &[]);
        check(&Mark::departing(Some(&mark), &whole, None).unwrap(), &session(b"b", 1), &[]);
        check(&Mark::departing(Some(&mark), &whole, Some(&fork)).unwrap(), &session(b"a", 7), &[]);
        check(&mark.vacated(), &session(b"b", 1), &[]);
        check(&mark.without(&fork).unwrap(), &session(b"a", 7), &[]);
    }

    #[test]
    fn a_look_raises_and_confirms_and_never_lowers() {
        let check = |current: Option<&Mark>, info: &SessionInfo, created: bool, expected: Option<(u64, Standing)>| {
            let next = Mark::advanced(current, info, created);
            let next = next.map(|next| (next.branches[&BranchId::main()].head.seq.0, next.standing));
            assert_eq!(next, expected, "{current:?} and {info:?}");
        };
        let info = session(b"a", 7);
        let mark = kept(&info);
        check(None, &info, false, Some((7, Standing::New)));
        check(Some(&Mark::of(&info)), &session(b"a", 8), false, Some((8, Standing::Kept)));
        check(Some(&mark), &info, false, None);
        check(Some(&mark), &session(b"a", 9), false, Some((9, Standing::Kept)));
        check(Some(&mark), &session(b"a", 3), false, None);
        check(Some(&mark), &session(b"b", 9), false, None);
        // The caller has just made it, from an archive or anew.
        check(Some(&mark), &session(b"a", 3), true, Some((3, Standing::New)));
        check(Some(&mark), &session(b"b", 0), true, Some((0, Standing::New)));
        let leaving = Mark::departing(Some(&mark), &info, None).unwrap();
        check(Some(&leaving), &info, false, None);
        check(Some(&leaving), &info, true, None);
        check(Some(&leaving), &session(b"b", 0), false, Some((0, Standing::New)));
        check(Some(&mark.vacated()), &session(b"a", 3), false, Some((3, Standing::New)));
    }

    #[test]
    fn what_is_to_be_removed_is_said_first_and_taken_back_if_it_is_refused() {
        let fork: BranchId = "fork".parse().unwrap();
        let info = with_fork(session(b"a", 7), 5);
        let mark = kept(&info);
        for branch in [None, Some(&fork)] {
            for current in [None, Some(&mark), Some(&Mark::of(&info))] {
                let leaving = Mark::departing(current, &info, branch).unwrap();
                assert!(leaving.number > current.map_or(0, |mark| mark.number));
                assert!(leaving.compare(&session(b"a", 7)).is_empty(), "{leaving:?}");
                assert_eq!(Mark::departing(Some(&leaving), &info, branch), None);
                let staying = leaving.staying(branch).unwrap();
                assert!(!staying.is_confirmed());
                assert_eq!(staying.staying(branch), None);
            }
        }
        assert_eq!(mark.staying(None), None);
        assert_eq!(Mark::departing(Some(&mark), &session(b"b", 1), Some(&fork)), None);
    }

    #[test]
    fn heads_of_confirmed_branches_are_raised_without_a_look() {
        let mark = kept(&session(b"a", 7));
        let heads = |branch: &str, seq| BTreeMap::from([(branch.parse().unwrap(), head(seq))]);
        let raised = mark.raised(&heads("main", 9)).unwrap();
        assert_eq!((raised.branches[&BranchId::main()].head, raised.number), (head(9), mark.number + 1));
        assert_eq!(raised.raised(&heads("main", 8)).unwrap().branches[&BranchId::main()].head, head(9));
        assert_eq!(mark.raised(&heads("fork", 9)), None);
        assert_eq!(Mark::of(&session(b"a", 7)).raised(&heads("main", 9)), None);
    }

    #[test]
    fn marks_keep_their_form_and_fit_into_a_value() {
        let mark = kept(&session(b"a", 7));
        assert_eq!(Mark::decode(&mark.encode()), Some(mark.clone()));
        let leaving = Mark::departing(Some(&mark), &session(b"a", 7), None).unwrap();
        let text = String::from_utf8(leaving.encode().to_vec()).unwrap();
        let hash = |bytes: &[u8]| Hash::of(bytes).to_string();
        let expected = format!(
            r#"{{"n":3,"genesis":"{a}","standing":"leaving","branches":{{"inbox":{{"seq":0,"hash":"{a}"}},"main":{{"seq":7,"hash":"{}"}}}}}}"#,
            hash(&7u64.to_le_bytes()),
            a = hash(b"a")
        );
        assert_eq!(text, expected);
        for nonsense in [&b""[..], b"\0\0\0", b"{}", b"[1]", text.as_bytes().split_last().unwrap().1] {
            assert_eq!(Mark::decode(nonsense), None);
        }
        let mut many = session(b"a", 7);
        for number in 0..1_000 {
            let name = format!("{number:\"<width$}", width = crate::id::MAX_ID_BYTES);
            many.branches.push(BranchInfo { branch: name.parse().unwrap(), ..many.branches[0].clone() });
        }
        assert!(Mark::of(&many).encode().len() <= crate::values::MAX_VALUE_BYTES);
    }
}
