//! The drawing of a branch graph: which row comes when, and which lanes run beside it. Newest on
//! top, one lane for each branch, each fork joined to the branch it came from. Pure: it knows
//! nothing of sessions, and gives back places and lines. Finding what comes next costs the same
//! however many branches there are, but for the logarithm.

use std::collections::{BTreeSet, HashSet};

/// A branch as it is drawn.
#[derive(Clone, Debug, Default)]
pub struct Branch {
    /// The branch it was forked from and the record at which, if it was.
    pub parent: Option<(usize, u64)>,
    /// What has a row, newest first.
    pub rows: Vec<Row>,
}

/// Something with a row of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The record.
    pub seq: u64,
    /// When it was written: newer rows stand above older ones where the graph leaves a choice.
    pub at: u64,
    /// Its sign in the graph.
    pub sign: char,
}

/// One line of the drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The lanes.
    pub lanes: String,
    /// The lanes below it, for more lines of the same row.
    pub below: String,
    /// What stands beside them.
    pub place: Place,
}

/// What stands beside the lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A row of a branch.
    Row {
        /// The branch.
        branch: usize,
        /// The row.
        row: usize,
    },
    /// Nothing: a fork joins the branch it came from.
    Join,
    /// There is more that is not shown.
    More,
}

/// The newest `limit` rows, drawn with `gap` columns between lanes.
pub fn draw(branches: &[Branch], limit: usize, gap: usize) -> Vec<Line> {
    drawn(branches, limit, gap).lines
}

fn drawn(branches: &[Branch], limit: usize, gap: usize) -> Graph<'_> {
    let mut graph = Graph::new(branches, gap);
    let mut shown = 0;
    while let Some(branch) = graph.next() {
        let is_row = graph.printed[branch] < branches[branch].rows.len();
        if is_row && shown == limit {
            graph.more();
            break;
        }
        if is_row {
            graph.row(branch);
            shown += 1;
        } else {
            graph.end(branch);
        }
    }
    graph
}

struct Graph<'a> {
    branches: &'a [Branch],
    gap: usize,
    /// The forks of each branch and the records at which they began, the latest first.
    forks: Vec<Vec<(usize, u64)>>,
    /// The number of those that began at or behind the next row of the branch: they stand above it.
    above: Vec<usize>,
    /// The number of those above that have not come to their beginning. A branch that has none is free.
    waits_for: Vec<usize>,
    /// The free branches that have not ended, by what comes next.
    free: BTreeSet<Rank>,
    /// The branch that runs in each lane.
    lanes: Vec<Option<usize>>,
    /// How many rows of each branch were drawn.
    printed: Vec<usize>,
    /// Which have come to their beginning.
    ended: Vec<bool>,
    /// The number of forks of each branch that have joined it.
    joins: Vec<usize>,
    /// Whose row was drawn last.
    last: Option<usize>,
    lines: Vec<Line>,
    /// The number of forks that were looked at to find what comes next.
    #[cfg(test)]
    looked: usize,
}

/// The rank of what comes next of a branch: one that only has to end comes first, then the newest row.
type Rank = (bool, Option<u64>, usize);

impl<'a> Graph<'a> {
    fn new(branches: &'a [Branch], gap: usize) -> Self {
        let count = branches.len();
        let mut forks = vec![Vec::new(); count];
        for (fork, info) in branches.iter().enumerate() {
            if let Some((parent, at)) = info.parent.filter(|(parent, _)| *parent != fork && *parent < count) {
                forks[parent].push((fork, at));
            }
        }
        forks.iter_mut().for_each(|forks| forks.sort_by_key(|(fork, at)| (std::cmp::Reverse(*at), *fork)));
        let mut graph = Self {
            branches,
            gap,
            forks,
            above: vec![0; count],
            waits_for: vec![0; count],
            free: BTreeSet::new(),
            lanes: Vec::new(),
            printed: vec![0; count],
            ended: vec![false; count],
            joins: vec![0; count],
            last: None,
            lines: Vec::new(),
            #[cfg(test)]
            looked: 0,
        };
        (0..count).for_each(|branch| graph.look_above(branch));
        graph
    }

    /// The branch whose row, or beginning, comes next.
    fn next(&mut self) -> Option<usize> {
        let Some(best) = self.free.last().copied() else {
            // Forks that go in a circle cannot be drawn rightly, but must not be drawn for ever.
            let open = (0..self.branches.len()).filter(|branch| !self.ended[*branch]);
            return open.max_by_key(|branch| self.rank(*branch));
        };
        // Of rows as new as each other, that of the branch that was drawn last.
        let last = self.last.map(|last| self.rank(last)).filter(|last| (last.0, last.1) == (best.0, best.1));
        Some(last.filter(|last| self.free.contains(last)).map_or(best.2, |last| last.2))
    }

    fn rank(&self, branch: usize) -> Rank {
        let row = self.branches[branch].rows.get(self.printed[branch]);
        (row.is_none(), row.map(|row| row.at), branch)
    }

    /// Takes in which forks stand above what comes next of a branch.
    fn look_above(&mut self, branch: usize) {
        let seq = self.next_seq(branch);
        while let Some((fork, _)) = self.forks[branch].get(self.above[branch]).filter(|(_, at)| *at >= seq) {
            self.waits_for[branch] += usize::from(!self.ended[*fork]);
            self.above[branch] += 1;
            #[cfg(test)]
            {
                self.looked += 1;
            }
        }
        if self.waits_for[branch] == 0 && !self.ended[branch] {
            self.free.insert(self.rank(branch));
        }
    }

    /// A fork has come to its beginning: the branch it came from may be free now.
    fn release_parent(&mut self, fork: usize) {
        let Some((parent, at)) = self.branches[fork].parent.filter(|(parent, _)| *parent != fork) else { return };
        if parent < self.branches.len() && at >= self.next_seq(parent) {
            self.waits_for[parent] -= 1;
            self.look_above(parent);
        }
    }

    /// The record of the next row; zero at the beginning.
    fn next_seq(&self, branch: usize) -> u64 {
        self.branches[branch].rows.get(self.printed[branch]).map_or(0, |row| row.seq)
    }

    fn row(&mut self, branch: usize) {
        let row = self.printed[branch];
        self.join(branch);
        let lane = self.lane(branch);
        let sign = self.branches[branch].rows[row].sign;
        self.free.remove(&self.rank(branch));
        self.printed[branch] += 1;
        self.last = Some(branch);
        self.look_above(branch);
        let lanes = self.cells(|at| if at == lane { sign } else { '│' });
        // A branch without anything below has no lane to show there.
        let ends = row + 1 == self.branches[branch].rows.len()
            && self.branches[branch].parent.is_none()
            && self.joins[branch] == self.forks[branch].len();
        let below = self.cells(|at| if at == lane && ends { ' ' } else { '│' });
        self.lines.push(Line { lanes, below, place: Place::Row { branch, row } });
    }

    /// The beginning of a branch: what was forked before its first row joins here.
    fn end(&mut self, branch: usize) {
        self.join(branch);
        self.free.remove(&self.rank(branch));
        self.ended[branch] = true;
        self.release_parent(branch);
        if self.branches[branch].parent.is_none() {
            self.leave_lane(branch);
        }
    }

    /// Joins the forks that began between the row drawn last and the next one. What comes next is
    /// the past of all of them, so it goes on in the leftmost of their lanes.
    fn join(&mut self, branch: usize) {
        // They join in the order in which they stand above: the latest fork first.
        let due = self.joins[branch]..self.above[branch];
        let due: HashSet<usize> = self.forks[branch][due].iter().map(|(fork, _)| *fork).collect();
        self.joins[branch] = self.above[branch];
        let meets = |lane: &Option<usize>| lane.is_some_and(|taken| taken == branch || due.contains(&taken));
        let mut meeting: Vec<usize> = (0..self.lanes.len()).filter(|lane| meets(&self.lanes[*lane])).collect();
        if meeting.is_empty() {
            return;
        }
        let to = meeting.remove(0);
        self.lanes[to] = Some(branch);
        for from in meeting.into_iter().rev() {
            let lanes = self.cells_between(to, from, |at, taken| match at {
                _ if at == to => '├',
                _ if at == from => '╯',
                _ if at > to && at < from && !taken => '─',
                _ if at > to && at < from => '┼',
                _ => '│',
            });
            self.lanes[from] = None;
            let below = self.cells(|_| '│');
            self.lines.push(Line { lanes, below, place: Place::Join });
        }
    }

    /// The lanes go on, but what stands in them is not shown.
    fn more(&mut self) {
        let lanes = self.cells(|_| '~');
        self.lines.push(Line { lanes, below: String::new(), place: Place::More });
    }

    /// The lane of a branch: the one it has, or the first free one.
    fn lane(&mut self, branch: usize) -> usize {
        if let Some(lane) = self.lanes.iter().position(|taken| *taken == Some(branch)) {
            return lane;
        }
        let lane = self.lanes.iter().position(Option::is_none).unwrap_or_else(|| {
            self.lanes.push(None);
            self.lanes.len() - 1
        });
        self.lanes[lane] = Some(branch);
        lane
    }

    fn leave_lane(&mut self, branch: usize) {
        self.lanes.iter_mut().filter(|lane| **lane == Some(branch)).for_each(|lane| *lane = None);
    }

    /// One line of lanes; empty ones stay empty.
    fn cells(&self, sign: impl Fn(usize) -> char) -> String {
        self.cells_between(1, 0, |at, _| sign(at))
    }

    /// The same, with a stroke between two lanes.
    fn cells_between(&self, left: usize, right: usize, sign: impl Fn(usize, bool) -> char) -> String {
        let mut text = String::new();
        for (at, lane) in self.lanes.iter().enumerate() {
            if at > 0 {
                let stroke = if at > left && at <= right { '─' } else { ' ' };
                text.extend(std::iter::repeat_n(stroke, self.gap));
            }
            let taken = lane.is_some();
            let inside = at >= left && at <= right;
            text.push(if taken || inside { sign(at, taken) } else { ' ' });
        }
        text.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A branch whose rows are (record, time).
    fn branch(parent: Option<(usize, u64)>, rows: &[(u64, u64)]) -> Branch {
        let row = |(seq, at): &(u64, u64)| Row { seq: *seq, at: *at, sign: '○' };
        Branch { parent, rows: rows.iter().map(row).collect() }
    }

    /// What is drawn, with `branch:record` beside each row.
    fn check(branches: &[Branch], limit: usize, expected: &[&str]) {
        let lines: Vec<String> = draw(branches, limit, 1)
            .iter()
            .map(|line| match line.place {
                Place::Row { branch, row } => format!("{}  {branch}:{}", line.lanes, branches[branch].rows[row].seq),
                _ => line.lanes.clone(),
            })
            .collect();
        assert_eq!(lines, expected, "\n{}", lines.join("\n"));
    }

    #[test]
    fn one_branch_is_one_lane() {
        check(&[branch(None, &[(9, 9), (5, 5), (2, 2)])], 10, &["○  0:9", "○  0:5", "○  0:2"]);
        check(&[], 10, &[]);
        check(&[branch(None, &[])], 10, &[]);
    }

    #[test]
    fn a_fork_stands_beside_and_joins_where_it_began() {
        let main = branch(None, &[(9, 9), (5, 5), (2, 2)]);
        let fork = branch(Some((0, 5)), &[(8, 12), (6, 7)]);
        check(&[main, fork], 10, &["○  1:8", "│ ○  0:9", "○ │  1:6", "├─╯", "○  0:5", "○  0:2"]);
    }

    #[test]
    fn a_fork_of_the_end_goes_on_in_the_same_lane() {
        let main = branch(None, &[(5, 5), (2, 2)]);
        check(&[main, branch(Some((0, 5)), &[(6, 7)])], 10, &["○  1:6", "○  0:5", "○  0:2"]);
    }

    #[test]
    fn forks_of_forks_join_one_after_the_other() {
        let main = branch(None, &[(9, 20), (3, 3), (1, 1)]);
        let fork = branch(Some((0, 3)), &[(8, 18), (4, 6)]);
        let again = branch(Some((1, 4)), &[(5, 19)]);
        let expected = ["○  0:9", "│ ○  2:5", "│ │ ○  1:8", "│ ├─╯", "│ ○  1:4", "├─╯", "○  0:3", "○  0:1"];
        check(&[main, fork, again], 20, &expected);
    }

    #[test]
    fn forks_at_the_same_place_join_one_below_the_other() {
        let main = branch(None, &[(9, 9), (2, 2)]);
        let forks = [branch(Some((0, 2)), &[(3, 5)]), branch(Some((0, 2)), &[(3, 4)])];
        let all = [main, forks[0].clone(), forks[1].clone()];
        check(&all, 20, &["○  0:9", "│ ○  1:3", "│ │ ○  2:3", "├─┼─╯", "├─╯", "○  0:2"]);
    }

    #[test]
    fn a_fork_between_two_rows_joins_between_them() {
        let all = [branch(None, &[(9, 9), (2, 2)]), branch(Some((0, 5)), &[(6, 6)])];
        check(&all, 20, &["○  0:9", "│ ○  1:6", "├─╯", "○  0:2"]);
    }

    #[test]
    fn a_fork_before_the_first_row_joins_below_it() {
        let all = [branch(None, &[(9, 9)]), branch(Some((0, 0)), &[(1, 6)])];
        check(&all, 20, &["○  0:9", "│ ○  1:1", "├─╯"]);
    }

    #[test]
    fn lanes_are_used_again() {
        let main = branch(None, &[(9, 9), (7, 7), (5, 5), (2, 2)]);
        let forks = [branch(Some((0, 7)), &[(8, 8)]), branch(Some((0, 2)), &[(3, 4)])];
        let all = [main, forks[0].clone(), forks[1].clone()];
        let expected = ["○  0:9", "│ ○  1:8", "├─╯", "○  0:7", "○  0:5", "│ ○  2:3", "├─╯", "○  0:2"];
        check(&all, 20, &expected);
    }

    #[test]
    fn what_is_left_out_is_said() {
        let all = [branch(None, &[(9, 9), (5, 5), (2, 2)]), branch(Some((0, 2)), &[(8, 8), (6, 6)])];
        check(&all, 2, &["○  0:9", "│ ○  1:8", "~ ~"]);
        check(&all, 5, &["○  0:9", "│ ○  1:8", "│ ○  1:6", "○ │  0:5", "├─╯", "○  0:2"]);
    }

    #[test]
    fn clocks_that_go_back_do_not_turn_history_around() {
        let all = [branch(None, &[(9, 1), (5, 50)]), branch(Some((0, 5)), &[(6, 2)])];
        check(&all, 20, &["○  1:6", "│ ○  0:9", "├─╯", "○  0:5"]);
    }

    #[test]
    fn a_circle_ends() {
        let all = [branch(Some((1, 5)), &[(6, 6)]), branch(Some((0, 6)), &[(7, 7)])];
        assert_eq!(draw(&all, 20, 1).iter().filter(|line| matches!(line.place, Place::Row { .. })).count(), 2);
    }

    #[test]
    fn each_fork_is_looked_at_once_however_many_there_are() {
        for forks in [20, 2_000] {
            let mut all = vec![branch(None, &[(9, 9), (5, 5), (2, 2)])];
            all.extend((0..forks).map(|fork| branch(Some((0, 5)), &[(6, 100 + fork)])));
            // Down to the row they were forked at, and no further than a page that ends before it.
            let rows =
                |graph: &Graph<'_>| graph.lines.iter().filter(|line| matches!(line.place, Place::Row { .. })).count();
            let whole = drawn(&all, all.len() + 2, 1);
            assert_eq!((whole.looked, rows(&whole)), (usize::try_from(forks).unwrap(), all.len() + 2));
            let page = drawn(&all, 10, 1);
            assert_eq!((page.looked, rows(&page)), (0, 10));
        }
    }

    #[test]
    fn lanes_can_stand_closer() {
        let all = [branch(None, &[(9, 9), (2, 2)]), branch(Some((0, 5)), &[(6, 6)])];
        let lanes: Vec<_> = draw(&all, 20, 0).into_iter().map(|line| line.lanes).collect();
        assert_eq!(lanes, ["○", "│○", "├╯", "○"]);
    }
}
