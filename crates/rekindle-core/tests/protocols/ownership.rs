//! Ownership: three processes want to run one session.
//!
//! Each asks for the lease, appends under it, renews it, begins effects and gives it back. A process
//! may crash for good; others on its machine then know, and end the lease they saw it hold. Every
//! reply may be lost, and every process has a wall clock of its own.

use std::hash::Hash;

use rekindle_core::{Append, Epoch, ErrorKind, Head, LeaseAction, Marks};
use stateright::{Model, Property};

use crate::session::{Branch, Process, Session, TICK, owner, prepare, process};
use crate::{fails, holds};

/// Length of a lease, in ticks.
const TTL: u64 = 2;
const PROCESSES: usize = 3;

const ONE_OWNER: &str = "every record was appended by the owner of the latest epoch";
const ONCE: &str = "nothing is appended twice, and nothing acknowledged is missing";
const NO_EVICTION: &str = "a live owner is not evicted";
const EFFECTS: &str = "an effect that begins at once after its check begins under a live lease";
const GOES_ON: &str = "a process that is alive can go on, at once if the owner is dead";

/// The rules under which processes take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rules {
    /// As it is: what was seen dead is ended, by owner and epoch, at the store's time.
    Seen,
    /// As it was: whoever holds the lease by then is evicted.
    Whoever,
    /// As it was where a store has no clock: leases are judged by the wall clock of who asks.
    OwnClocks,
}

/// Bounds of the exploration.
#[derive(Clone, Debug)]
struct Ownership {
    rules: Rules,
    /// Number of processes that take part.
    processes: Process,
    /// Offset of each wall clock from the store's.
    ahead: [u64; PROCESSES],
    /// End of time.
    ticks: u64,
    /// Numbers of records appended, leases granted, processes lost and replies lost.
    records: usize,
    epochs: u64,
    crashes: usize,
    lost: u8,
    /// Processes begin effects.
    effects: bool,
}

/// A record of the branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Note {
    by: Process,
    /// The epoch it was appended under.
    epoch: Epoch,
    /// The latest epoch when it was.
    latest: Epoch,
    /// Which of its writer it is.
    number: u8,
}

/// Beliefs of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Belief {
    /// It owns nothing.
    Nothing,
    /// It has asked for the lease, at this time of its own clock.
    Asked(u64),
    /// It was refused by this owner, which is dead.
    SawDead(Process, Epoch),
    /// It owns the session.
    Owner(Owner),
    /// It has crashed.
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Owner {
    epoch: Epoch,
    /// Where the branch ends.
    head: Head,
    /// Until when it is the owner for sure, by its own clock.
    until: u64,
    /// It has appended, and no reply came.
    unsure: bool,
    /// The time, in the store, at which it found that it may begin an effect.
    checked: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Hash)]
struct World {
    session: Session<Note>,
    beliefs: [Belief; PROCESSES],
    /// How many appends each had acknowledged.
    acknowledged: [u8; PROCESSES],
    /// To whom each epoch was granted.
    granted: Vec<Process>,
    lost: u8,
    /// Somebody's live lease was ended by another while it lived.
    evicted: bool,
    /// An effect began under no live lease: right after its check, or some time later.
    early: bool,
    late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    Crash(Process),
    Ask(Process),
    /// With whether the reply is lost, as in those that follow.
    Acquire(Process, bool),
    EndSeen(Process, bool),
    Renew(Process, bool),
    Append(Process, bool),
    /// An append gets lost itself, which looks the same to its process.
    LoseAppend(Process),
    Check(Process),
    Effect(Process),
    Release(Process, bool),
}

impl Ownership {
    fn new(rules: Rules) -> Self {
        Self {
            rules,
            processes: 3,
            ahead: [0, 3, 1],
            ticks: 3,
            records: 2,
            epochs: 3,
            crashes: 2,
            lost: 0,
            effects: false,
        }
    }

    /// The time at which the store judges what a process asks.
    fn judged_at(&self, world: &World, of: Process) -> u64 {
        match self.rules {
            Rules::OwnClocks => self.own_clock(world, of),
            _ => world.session.now,
        }
    }

    fn own_clock(&self, world: &World, of: Process) -> u64 {
        world.session.now + self.ahead[usize::from(of)]
    }

    fn acquire(&self, world: &mut World, by: Process, lost: bool) -> Option<()> {
        let asked = match world.beliefs[usize::from(by)] {
            Belief::Asked(asked) => asked,
            Belief::Nothing => self.own_clock(world, by),
            _ => return None,
        };
        let action = LeaseAction::Acquire { owner: owner(by), ttl: TICK * TTL as u32, whole_session: true };
        let asked_again = match world.session.lease_at(action, self.judged_at(world, by)) {
            Ok(lease) => {
                world.granted.push(by);
                let held = Owner {
                    epoch: lease.info.epoch,
                    head: lease.head,
                    until: asked + TTL,
                    unsure: false,
                    checked: None,
                };
                Belief::Owner(held)
            }
            Err(error) => match error.kind() {
                ErrorKind::AlreadyRunning { owner, epoch, .. } if world.is_dead(process(owner)) => {
                    Belief::SawDead(process(owner), *epoch)
                }
                _ => Belief::Nothing,
            },
        };
        world.beliefs[usize::from(by)] = if lost { Belief::Nothing } else { asked_again };
        Some(())
    }

    /// What a process does that has seen the owner dead.
    fn end_seen(&self, world: &mut World, by: Process, lost: bool) -> Option<()> {
        let Belief::SawDead(dead, epoch) = world.beliefs[usize::from(by)] else { return None };
        if self.rules == Rules::Whoever {
            take_over_whoever(world, by);
        } else {
            // Ended, or somebody else did: either way the next thing is to ask.
            let _ =
                world.session.lease_at(LeaseAction::Release { owner: owner(dead), epoch }, self.judged_at(world, by));
        }
        if !lost {
            world.beliefs[usize::from(by)] = Belief::Nothing;
        }
        Some(())
    }

    fn renew(&self, world: &mut World, by: Process, lost: bool) -> Option<()> {
        let held = world.owner(by)?;
        let action = LeaseAction::Renew { epoch: held.epoch, ttl: TICK * TTL as u32 };
        let renewed = world.session.lease_at(action, self.judged_at(world, by));
        world.beliefs[usize::from(by)] = match renewed {
            _ if lost => Belief::Owner(held),
            Ok(_) => Belief::Owner(Owner { until: self.own_clock(world, by) + TTL, ..held }),
            Err(_) => Belief::Nothing,
        };
        Some(())
    }

    fn check(&self, world: &mut World, by: Process) -> Option<()> {
        let held = world.owner(by)?;
        // Past its deadline a process asks the store, which is a renewal.
        let sure = self.own_clock(world, by) < held.until;
        world.beliefs[usize::from(by)] = Belief::Owner(Owner { checked: sure.then_some(world.session.now), ..held });
        sure.then_some(())
    }

    /// The steps of a process that is alive.
    fn steps_of(&self, world: &World, by: Process, steps: &mut Vec<Step>) {
        let replies = if world.lost < self.lost { &[false, true][..] } else { &[false] };
        match world.beliefs[usize::from(by)] {
            Belief::Dead => {}
            // The time of asking matters to effects alone.
            Belief::Nothing if self.effects => steps.push(Step::Ask(by)),
            Belief::Nothing | Belief::Asked(_) => {
                let free = world.granted.len() < self.epochs as usize;
                steps.extend(replies.iter().filter(|_| free).map(|lost| Step::Acquire(by, *lost)));
            }
            Belief::SawDead(..) => steps.extend(replies.iter().map(|lost| Step::EndSeen(by, *lost))),
            Belief::Owner(held) => {
                for lost in replies {
                    steps.extend([Step::Renew(by, *lost), Step::Release(by, *lost)]);
                    if world.session.main.len() < self.records || held.unsure {
                        steps.push(if *lost { Step::LoseAppend(by) } else { Step::Append(by, false) });
                        steps.extend(lost.then_some(Step::Append(by, true)));
                    }
                }
                let effect = if held.checked.is_some() { Step::Effect(by) } else { Step::Check(by) };
                steps.extend(self.effects.then_some(effect));
            }
        }
    }
}

/// The take-over as it was: the lease is acquired in the name of whoever holds it, and released.
fn take_over_whoever(world: &mut World, by: Process) {
    let ttl = TICK * TTL as u32;
    let mine = LeaseAction::Acquire { owner: owner(by), ttl, whole_session: true };
    let Err(refused) = world.session.clone().lease(mine) else { return };
    let ErrorKind::AlreadyRunning { owner: holder, .. } = refused.kind() else { return };
    let theirs = LeaseAction::Acquire { owner: holder.clone(), ttl, whole_session: true };
    let Ok(fenced) = world.session.lease(theirs) else { return };
    world.granted.push(by);
    let _ = world.session.lease(LeaseAction::Release { owner: holder.clone(), epoch: fenced.info.epoch });
}

impl World {
    fn is_dead(&self, of: Process) -> bool {
        self.beliefs[usize::from(of)] == Belief::Dead
    }

    fn owner(&self, of: Process) -> Option<Owner> {
        match self.beliefs[usize::from(of)] {
            Belief::Owner(held) => Some(held),
            _ => None,
        }
    }

    fn append(&mut self, by: Process, lost: bool) -> Option<()> {
        let held = self.owner(by)?;
        let number = self.acknowledged[usize::from(by)];
        let latest = self.session.branch(Branch::Main).epoch;
        let note = Note { by, epoch: held.epoch, latest, number };
        // What is repeated is the same: its hash is made of what its writer knows.
        let plain = prepare(Branch::Main, held.head, &(by, held.epoch, number), Marks::NONE);
        let appended = self.session.append(&Append { fence: Some(held.epoch), ..plain }, Branch::Main, note);
        self.beliefs[usize::from(by)] = match appended {
            _ if lost => Belief::Owner(Owner { unsure: true, ..held }),
            Ok(appended) => {
                self.acknowledged[usize::from(by)] += 1;
                Belief::Owner(Owner { head: appended.head, unsure: false, ..held })
            }
            Err(_) => Belief::Nothing,
        };
        Some(())
    }

    fn lose_append(&mut self, by: Process) -> Option<()> {
        let held = self.owner(by)?;
        self.beliefs[usize::from(by)] = Belief::Owner(Owner { unsure: true, ..held });
        Some(())
    }

    fn release(&mut self, by: Process, lost: bool) -> Option<()> {
        let held = self.owner(by)?;
        let released = self.session.lease(LeaseAction::Release { owner: owner(by), epoch: held.epoch });
        self.beliefs[usize::from(by)] = match released {
            _ if lost => Belief::Owner(held),
            _ => Belief::Nothing,
        };
        Some(())
    }

    fn effect(&mut self, by: Process) -> Option<()> {
        let held = self.owner(by)?;
        let stale = self.session.live() != Some((by, held.epoch));
        match held.checked? == self.session.now {
            true => self.early |= stale,
            false => self.late |= stale,
        }
        self.beliefs[usize::from(by)] = Belief::Owner(Owner { checked: None, ..held });
        Some(())
    }

    /// Notes if a step of `by` ended the live lease of another that lives.
    fn note_eviction(&mut self, before: &Session<Note>, by: Process) {
        let Some((holder, epoch)) = before.live() else { return };
        let ended = self.session.live() != Some((holder, epoch));
        self.evicted |= ended && holder != by && !self.is_dead(holder);
    }

    fn crashed(&self) -> usize {
        self.beliefs.iter().filter(|belief| **belief == Belief::Dead).count()
    }
}

impl Model for Ownership {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            session: Session::new(),
            beliefs: [Belief::Nothing; PROCESSES],
            acknowledged: [0; PROCESSES],
            granted: Vec::new(),
            lost: 0,
            evicted: false,
            early: false,
            late: false,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        // What comes after an effect that began too late adds nothing.
        if world.late {
            return;
        }
        if world.session.now < self.ticks {
            steps.push(Step::Tick);
        }
        for by in 0..self.processes {
            self.steps_of(world, by, steps);
            if !world.is_dead(by) && world.crashed() < self.crashes {
                steps.push(Step::Crash(by));
            }
        }
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut world = before.clone();
        let (by, lost) = match step {
            Step::Tick => {
                world.session.now += 1;
                return Some(world);
            }
            Step::Crash(by) => {
                world.beliefs[usize::from(by)] = Belief::Dead;
                return Some(world);
            }
            Step::Ask(by) | Step::Check(by) | Step::Effect(by) => (by, false),
            Step::LoseAppend(by) => (by, true),
            Step::Acquire(by, lost)
            | Step::EndSeen(by, lost)
            | Step::Renew(by, lost)
            | Step::Append(by, lost)
            | Step::Release(by, lost) => (by, lost),
        };
        world.lost += u8::from(lost);
        match step {
            Step::Ask(_) => {
                world.beliefs[usize::from(by)] = Belief::Asked(self.own_clock(&world, by));
                Some(())
            }
            Step::Acquire(..) => self.acquire(&mut world, by, lost),
            Step::EndSeen(..) => self.end_seen(&mut world, by, lost),
            Step::Renew(..) => self.renew(&mut world, by, lost),
            Step::Append(..) => world.append(by, lost),
            Step::LoseAppend(_) => world.lose_append(by),
            Step::Release(..) => world.release(by, lost),
            Step::Check(_) => self.check(&mut world, by),
            Step::Effect(_) => world.effect(by),
            Step::Tick | Step::Crash(_) => None,
        }?;
        world.note_eviction(&before.session, by);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(ONE_OWNER, |_, world: &World| one_owner(world)),
            Property::always(ONCE, |_, world: &World| once(world)),
            Property::always(NO_EVICTION, |_, world: &World| !world.evicted),
            Property::always(EFFECTS, |_, world: &World| !world.early),
            Property::always(GOES_ON, can_go_on),
            Property::sometimes("two owners, one after the other, appended", |_, world: &World| followed(world)),
        ];
        if self.effects {
            // What no lease can prevent, and why tools are given the epoch as a fence.
            let name = "a process frozen behind its check begins an effect too late";
            properties.push(Property::sometimes(name, |_, world: &World| world.late));
        }
        if self.lost > 0 {
            let name = "an append whose reply was lost is acknowledged";
            properties.push(Property::sometimes(name, |_, world: &World| {
                world.lost > 0 && world.acknowledged.iter().any(|count| *count > 0)
            }));
        }
        properties
    }
}

fn one_owner(world: &World) -> bool {
    let granted = |note: &Note| world.granted.get(note.epoch.0 as usize - 1) == Some(&note.by);
    world.session.main.iter().all(|note| note.epoch == note.latest && granted(note))
        && world.session.main.is_sorted_by_key(|note| note.epoch)
}

fn once(world: &World) -> bool {
    (0..PROCESSES as Process).all(|by| {
        let notes = world.session.main.iter().filter(|note| note.by == by);
        let numbers: Vec<u8> = notes.map(|note| note.number).collect();
        // One more may be there whose reply was lost.
        let known = world.acknowledged[usize::from(by)];
        (0..known).all(|number| numbers.contains(&number)) && numbers.len() <= usize::from(known) + 1
    })
}

fn followed(world: &World) -> bool {
    world.session.main.windows(2).any(|pair| pair[0].by != pair[1].by)
}

/// Whether the first process that is alive becomes the owner, if all others stand still from here.
fn can_go_on(model: &Ownership, world: &World) -> bool {
    let alive = (0..PROCESSES as Process).find(|by| !world.is_dead(*by));
    let Some(by) = alive else { return true };
    let mut world = world.clone();
    let others = world.session.live().is_some_and(|(holder, _)| holder != by && !world.is_dead(holder));
    world.session.now += if others { TTL } else { 0 };
    for _ in 0..2 {
        world.beliefs[usize::from(by)] = Belief::Asked(model.own_clock(&world, by));
        let _ = model.acquire(&mut world, by, false);
        let _ = model.end_seen(&mut world, by, false);
    }
    world.owner(by).is_some_and(|held| world.session.live() == Some((by, held.epoch)))
}

#[test]
fn one_owner_whatever_crashes_or_freezes() {
    holds(Ownership::new(Rules::Seen));
}

#[test]
fn one_owner_whatever_crashes_or_gets_lost() {
    holds(Ownership { ticks: TTL, lost: 1, ..Ownership::new(Rules::Seen) });
}

#[test]
fn effects_begin_under_a_lease_unless_their_process_freezes() {
    holds(Ownership { processes: 2, crashes: 1, effects: true, ..Ownership::new(Rules::Seen) });
}

#[test]
fn taking_over_from_whoever_holds_the_lease_evicts_a_live_owner() {
    let steps = fails(Ownership::new(Rules::Whoever), NO_EVICTION).into_actions();
    assert!(steps.iter().any(|step| matches!(step, Step::EndSeen(..))), "{steps:?}");
}

#[test]
fn judging_leases_by_wall_clocks_evicts_a_live_owner() {
    fails(Ownership { crashes: 0, ..Ownership::new(Rules::OwnClocks) }, NO_EVICTION);
}
