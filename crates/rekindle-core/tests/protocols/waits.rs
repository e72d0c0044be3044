//! Waits: a run waits for an answer until a time, while people answer it and cancel it.
//!
//! Two runners follow each other by lease; each looks at the session, and some time later acts on what
//! it saw: it takes an answer over, records that the wait expired, closes it, or obeys a cancel. Two
//! people answer differently; a third cancels the run while nobody runs it. Any reply may be lost, and
//! every process has a wall clock of its own.

use std::hash::Hash;

use rekindle_core::{Append, Epoch, ErrorKind, Head, LeaseAction, Marks, Seq};
use stateright::{Model, Property};

use crate::session::{Branch, Process, Session, TICK, ends_at, owner, prepare, stands_at};
use crate::{fails, holds};

/// How long a lease lasts, in ticks.
const TTL: u64 = 1;
/// When the wait expires.
const EXPIRES: u64 = 1;
/// How long time goes on.
const TICKS: u64 = 1;
const RUNNERS: usize = 2;
const PEOPLE: usize = 2;
/// How often a lease is granted.
const EPOCHS: usize = 3;

const COUNTS: &str = "an acknowledged answer is the one that counts, unless the run is cancelled after it";
const REFUSED: &str = "what is decided takes no answer";
const ONE_END: &str = "a wait ends once, and what expired ends as expired";
const IN_TIME: &str = "a wait expires at its time by the store's clock, and takes no answer that comes later";
const READ: &str = "an acknowledged answer is read by the next run, unless the run is cancelled";

/// The rules under which a wait is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rules {
    /// As it is: who appends names what it saw of the other branch, and time is the store's.
    Conditional,
    /// As it was: only the end of the branch that is appended to is compared.
    Unconditional,
    /// As it was: everybody goes by a clock of its own.
    OwnClocks,
}

/// A record of either branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Note {
    /// On `main`: the wait was opened.
    Opened,
    /// On `main`: its time came, and nothing unread answered it. With the time in the store.
    Expired(u64),
    /// On `main`: it is over.
    Closed(End),
    /// In the inbox: somebody's answer, with how many records `main` had then.
    Answer(Process, usize),
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    Answered(Process),
    Expired,
    /// With how many records of the inbox were read before.
    Cancelled(usize),
}

/// What was seen of the session when it was last looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Seen {
    main: Head,
    inbox: Head,
    last_wait: Seq,
    /// The first answer in the inbox.
    answer: Option<Process>,
    open: bool,
    expired: bool,
    /// The time has come, by the clock that counts for who looked.
    due: bool,
    /// The time in the store.
    at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Runner {
    Idle,
    /// Holds a lease, as far as it knows, and has looked or not.
    Owner(Epoch, Option<Seen>),
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Person {
    /// Has something to say.
    Idle,
    Looked(Seen),
    /// Has answered, and no reply came.
    Unsure(Seen),
    /// Was told that the answer counts.
    Acknowledged,
    /// Was told that it does not.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Canceller {
    Idle,
    Looked(Seen),
    Done,
}

#[derive(Clone, Debug, PartialEq, Hash)]
struct World {
    session: Session<Note>,
    runners: [Runner; RUNNERS],
    people: [Person; PEOPLE],
    canceller: Canceller,
    granted: usize,
    lost: bool,
    /// Somebody was let answer who had looked after the time.
    late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    Crash(usize),
    Acquire(usize),
    /// A runner looks.
    Look(usize),
    /// A runner does what follows from what it saw.
    Act(usize),
    /// A runner obeys a cancel.
    Stop(usize),
    /// A person looks.
    Read(usize),
    /// A person answers, with whether the reply is lost.
    Answer(usize, bool),
    /// The canceller looks.
    Consider,
    /// The canceller closes the wait.
    Cancel,
}

/// What is explored.
#[derive(Clone, Debug)]
struct Waits {
    rules: Rules,
}

/// How far the wall clock of each process is ahead of the store's: runners, then people, then the
/// canceller. Nobody's counts, unless the rules are old.
const AHEAD: [i64; RUNNERS + PEOPLE + 1] = [1, -1, -1, 1, 0];

impl Waits {
    fn look(&self, world: &World, by: usize) -> Seen {
        let (main, inbox) = (world.session.branch(Branch::Main), world.session.branch(Branch::Inbox));
        let now = match self.rules {
            Rules::OwnClocks => world.session.now.saturating_add_signed(AHEAD[by]),
            _ => world.session.now,
        };
        let answer = world.session.inbox.iter().find_map(|note| match note {
            Note::Answer(by, _) => Some(*by),
            _ => None,
        });
        Seen {
            main: main.head,
            inbox: inbox.head,
            last_wait: main.last_wait,
            answer,
            open: !world.session.main.iter().any(|note| matches!(note, Note::Closed(_))),
            expired: world.session.main.iter().any(|note| matches!(note, Note::Expired(_))),
            due: now >= EXPIRES,
            at: world.session.now,
        }
    }

    /// Appends to `main` what a runner or the canceller made of what it saw.
    fn close(&self, world: &mut World, seen: &Seen, note: Note, fence: Option<Epoch>) -> Result<(), ErrorKind> {
        let plain = prepare(Branch::Main, seen.main, &note, Marks::WAIT);
        // What follows from an answer that was read holds whatever else comes; all else must not have
        // missed one.
        let depends = matches!(note, Note::Expired(_) | Note::Closed(End::Cancelled(_)));
        let condition = (depends && self.rules != Rules::Unconditional).then(|| ends_at(Branch::Inbox, seen.inbox));
        let append = Append { fence, condition, ..plain };
        world.session.append(&append, Branch::Main, note).map(drop).map_err(|error| error.kind().clone())
    }

    fn act(&self, world: &mut World, by: usize, cancel: bool) -> Option<()> {
        let Runner::Owner(epoch, Some(seen)) = world.runners[by] else { return None };
        let note = match seen {
            Seen { main, .. } if main.seq == Seq::ZERO => Note::Opened,
            Seen { open: false, .. } => return None,
            Seen { expired: true, .. } => Note::Closed(End::Expired),
            Seen { inbox, .. } if cancel => Note::Closed(End::Cancelled(inbox.seq.0 as usize)),
            Seen { answer: Some(answer), .. } => Note::Closed(End::Answered(answer)),
            Seen { due: true, .. } => Note::Expired(seen.at),
            _ => return None,
        };
        world.runners[by] = match self.close(world, &seen, note, Some(epoch)) {
            Ok(()) | Err(ErrorKind::Overtaken { .. }) => Runner::Owner(epoch, None),
            Err(_) => Runner::Idle,
        };
        Some(())
    }

    fn answer(&self, world: &mut World, by: usize, lost: bool) -> Option<()> {
        let (Person::Looked(seen) | Person::Unsure(seen)) = world.people[by] else { return None };
        let note = Note::Answer(by as Process, world.session.main.len());
        let plain = prepare(Branch::Inbox, seen.inbox, &by, Marks::WAIT);
        let conditional = self.rules != Rules::Unconditional;
        let condition = conditional.then(|| stands_at(Branch::Main, seen.last_wait));
        let answered = world.session.append(&Append { condition, ..plain }, Branch::Inbox, note);
        world.late |= answered.is_ok() && seen.at >= EXPIRES;
        world.people[by] = match answered {
            _ if lost => Person::Unsure(seen),
            Ok(_) => Person::Acknowledged,
            // Something else came first: it looks again, and learns what.
            Err(_) => Person::Idle,
        };
        Some(())
    }

    fn read(&self, world: &mut World, by: usize) -> Option<()> {
        let seen = self.look(world, RUNNERS + by);
        let decided = !seen.open || seen.expired || seen.due || seen.answer.is_some();
        world.people[by] = if decided { Person::Refused } else { Person::Looked(seen) };
        // There is nothing to answer before it was opened.
        (seen.main.seq > Seq::ZERO).then_some(())
    }

    fn cancel(&self, world: &mut World) -> Option<()> {
        let Canceller::Looked(seen) = world.canceller else { return None };
        let cancelled = Note::Closed(End::Cancelled(seen.inbox.seq.0 as usize));
        let over = !seen.open || seen.expired;
        world.canceller = match over {
            true => Canceller::Done,
            false => match self.close(world, &seen, cancelled, None) {
                Ok(()) => Canceller::Done,
                Err(_) => Canceller::Idle,
            },
        };
        Some(())
    }

    fn acquire(&self, world: &mut World, by: usize) -> Option<()> {
        let action = LeaseAction::Acquire { owner: owner(by as Process), ttl: TICK * TTL as u32, whole_session: true };
        let mut acquired = world.session.lease(action.clone());
        if let Err(ErrorKind::AlreadyRunning { owner: holder, epoch, .. }) = acquired.as_ref().map_err(|e| e.kind())
            && world.runners[usize::from(crate::session::process(holder))] == Runner::Dead
        {
            let seen = LeaseAction::Release { owner: holder.clone(), epoch: *epoch };
            world.session.lease(seen).ok()?;
            acquired = world.session.lease(action);
        }
        world.runners[by] = Runner::Owner(acquired.ok()?.info.epoch, None);
        world.granted += 1;
        Some(())
    }
}

impl World {
    /// How the wait ended, if it did.
    fn ends(&self) -> impl Iterator<Item = End> {
        self.session.main.iter().filter_map(|note| match note {
            Note::Closed(end) => Some(*end),
            _ => None,
        })
    }

    fn acknowledged(&self) -> impl Iterator<Item = Process> {
        let people = self.people.iter().enumerate();
        people.filter(|(_, person)| **person == Person::Acknowledged).map(|(by, _)| by as Process)
    }

    /// Where in the inbox somebody's answer stands.
    fn answered_at(&self, by: Process) -> Option<usize> {
        self.session.inbox.iter().position(|note| matches!(note, Note::Answer(given, _) if *given == by))
    }

    /// Where on `main` the wait was decided.
    fn decided_at(&self) -> Option<usize> {
        self.session.main.iter().position(|note| matches!(note, Note::Expired(_) | Note::Closed(_)))
    }
}

impl Model for Waits {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            session: Session::new(),
            runners: [Runner::Idle; RUNNERS],
            people: [Person::Idle; PEOPLE],
            canceller: Canceller::Idle,
            granted: 0,
            lost: false,
            late: false,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.session.now < TICKS {
            steps.push(Step::Tick);
        }
        for (by, runner) in world.runners.iter().enumerate() {
            match runner {
                Runner::Idle if world.granted < EPOCHS => steps.push(Step::Acquire(by)),
                Runner::Owner(_, None) => steps.push(Step::Look(by)),
                Runner::Owner(_, Some(_)) => steps.extend([Step::Act(by), Step::Stop(by)]),
                _ => {}
            }
            if matches!(runner, Runner::Owner(..)) && !world.runners.contains(&Runner::Dead) {
                steps.push(Step::Crash(by));
            }
        }
        for (by, person) in world.people.iter().enumerate() {
            match person {
                Person::Idle => steps.push(Step::Read(by)),
                Person::Looked(_) if !world.lost => steps.extend([Step::Answer(by, false), Step::Answer(by, true)]),
                Person::Looked(_) | Person::Unsure(_) => steps.push(Step::Answer(by, false)),
                Person::Acknowledged | Person::Refused => {}
            }
        }
        match world.canceller {
            Canceller::Idle => steps.push(Step::Consider),
            Canceller::Looked(_) => steps.push(Step::Cancel),
            Canceller::Done => {}
        }
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut world = before.clone();
        match step {
            Step::Tick => {
                world.session.now += 1;
                Some(())
            }
            Step::Crash(by) => {
                world.runners[by] = Runner::Dead;
                Some(())
            }
            Step::Acquire(by) => self.acquire(&mut world, by),
            Step::Look(by) => {
                let Runner::Owner(epoch, None) = world.runners[by] else { return None };
                world.runners[by] = Runner::Owner(epoch, Some(self.look(&world, by)));
                Some(())
            }
            Step::Act(by) => self.act(&mut world, by, false),
            Step::Stop(by) => self.act(&mut world, by, true),
            Step::Read(by) => self.read(&mut world, by),
            Step::Answer(by, lost) => {
                world.lost |= lost;
                self.answer(&mut world, by, lost)
            }
            Step::Consider => {
                world.canceller = Canceller::Looked(self.look(&world, RUNNERS + PEOPLE));
                (!before.session.main.is_empty()).then_some(())
            }
            Step::Cancel => self.cancel(&mut world),
        }?;
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(COUNTS, |_, world: &World| acknowledged_counts(world)),
            Property::always(REFUSED, |_, world: &World| refused_when_decided(world)),
            Property::always(ONE_END, |_, world: &World| one_end(world)),
            Property::always(IN_TIME, |_, world: &World| in_time(world)),
            Property::always(READ, read_by_the_next),
            Property::sometimes("it is answered", |_, world: &World| {
                ended(world, |end| matches!(end, End::Answered(_)))
            }),
            Property::sometimes("it expires", |_, world: &World| ended(world, |end| end == End::Expired)),
            Property::sometimes("it is cancelled", |_, world: &World| {
                ended(world, |end| matches!(end, End::Cancelled(_)))
            }),
            Property::sometimes("an answer is refused", |_, world: &World| world.people.contains(&Person::Refused)),
            Property::sometimes("a lost reply is had again", |_, world: &World| {
                world.lost && world.acknowledged().next().is_some()
            }),
        ]
    }
}

fn ended(world: &World, how: fn(End) -> bool) -> bool {
    world.ends().any(how)
}

fn acknowledged_counts(world: &World) -> bool {
    let expired = world.session.main.iter().any(|note| matches!(note, Note::Expired(_)));
    world.acknowledged().all(|by| {
        let counts = |end| match end {
            End::Answered(other) => other == by,
            End::Expired => false,
            // Whoever cancels has read the answer before.
            End::Cancelled(read) => world.answered_at(by).is_some_and(|at| at < read),
        };
        !expired && world.ends().all(counts)
    })
}

fn refused_when_decided(world: &World) -> bool {
    world.session.inbox.iter().all(|note| match note {
        Note::Answer(_, main) => world.decided_at().is_none_or(|decided| decided >= *main),
        _ => true,
    })
}

fn one_end(world: &World) -> bool {
    let expired = world.session.main.iter().filter(|note| matches!(note, Note::Expired(_))).count();
    let mut ends = world.ends();
    let end = ends.next();
    expired <= 1 && ends.next().is_none() && (expired == 0 || end.is_none_or(|end| end == End::Expired))
}

fn in_time(world: &World) -> bool {
    let early = |note: &Note| matches!(note, Note::Expired(at) if *at < EXPIRES);
    !world.late && !world.session.main.iter().any(early)
}

/// Whether a runner that acquires the lease now, and goes on alone, reads what was acknowledged.
fn read_by_the_next(model: &Waits, world: &World) -> bool {
    if world.acknowledged().next().is_none() || world.ends().next().is_some() {
        return true;
    }
    let mut world = world.clone();
    world.session.now = world.session.now.max(EXPIRES) + TTL;
    world.runners[0] = Runner::Idle;
    let steps = [Step::Acquire(0), Step::Look(0), Step::Act(0), Step::Look(0), Step::Act(0)];
    for step in steps {
        if let Some(next) = model.next_state(&world, step) {
            world = next;
        }
    }
    world.acknowledged().all(|by| world.ends().any(|end| end == End::Answered(by)))
}

#[test]
fn an_answer_an_expiry_and_a_cancel_exclude_each_other() {
    holds(Waits { rules: Rules::Conditional });
}

#[test]
fn without_conditions_an_acknowledged_answer_does_not_count() {
    fails(Waits { rules: Rules::Unconditional }, COUNTS);
}

#[test]
fn without_conditions_a_decided_wait_takes_an_answer() {
    fails(Waits { rules: Rules::Unconditional }, REFUSED);
}

#[test]
fn by_clocks_of_their_own_a_wait_expires_too_early_or_too_late() {
    fails(Waits { rules: Rules::OwnClocks }, IN_TIME);
}
