//! Removes the older part of a branch. A base takes its place once `session.json` says so; the
//! files and lines it stands for are then only space to free, at any time and in any order.

use std::path::{Path, PathBuf};

use rekindle_core::{Base, Error, Result};

use super::branch::{Branch, create_directory};
use super::layout::{Layout, absent, base_name, reading, segment_first, segment_name, writing};
use super::scan::{Item, Meta};

impl Branch {
    /// Writes the file of a base; it counts once `session.json` names its head.
    pub(super) fn write_base(layout: &Layout, directory: &Path, base: &Base) -> Result<()> {
        let mut bytes = Vec::new();
        for frame in &base.frames {
            let line = frame
                .to_line(None::<Meta>)
                .map_err(|error| Error::invalid("a part of the base cannot be written").because(error))?;
            bytes.extend(line);
        }
        create_directory(layout, directory)?;
        layout.replace(&directory.join(base_name(base.head)), &bytes)
    }

    /// Removes files and bytes from before what is kept. May be stopped at any point.
    pub(super) fn remove_dead(&mut self, layout: &Layout) -> Result<()> {
        let names = layout.names(&self.directory)?;
        let live = self.floor().next();
        let current = self.info.base.map(base_name);
        let remove = |path: PathBuf| match layout.disk.remove_file(&path) {
            Err(error) if !absent(&error) => Err(writing(&path)(error)),
            _ => Ok(()),
        };
        self.cut_dead_lines(layout)?;
        let kept = self.tail.take().map(|tail| tail.segments).unwrap_or_default();
        for name in &names {
            let is_dead = match segment_first(name) {
                Some(first) => first < live && !kept.contains(&first),
                None => name.starts_with("base-") && Some(name) != current.as_ref(),
            };
            if is_dead {
                remove(self.directory.join(name))?;
            }
        }
        match names.is_empty() {
            true => Ok(()),
            false => layout.sync_dir(&self.directory),
        }
    }

    /// Rewrites the segment in which dead lines are followed by live ones; forgets it if all are dead.
    fn cut_dead_lines(&mut self, layout: &Layout) -> Result<()> {
        let floor = self.floor();
        let Some(first) =
            self.tail.as_ref().and_then(|tail| tail.segments.first().copied()).filter(|first| *first <= floor)
        else {
            return Ok(());
        };
        let directory = self.directory.clone();
        let (file, scan) = self.segment(layout, 0)?;
        if scan.torn || scan.broken.is_some() {
            return Ok(());
        }
        let replaced = match scan.commit_with_records_after(floor) {
            None => None,
            Some(Item::Line(line)) if line.first > first => {
                let Some(file) = file else { return Ok(()) };
                let bytes = file.read_exact_at(line.offset, (scan.good - line.offset) as usize);
                Some((line.first, bytes.map_err(reading(&directory))?))
            }
            Some(_) => return Ok(()),
        };
        if let Some((first, bytes)) = &replaced {
            layout.replace(&directory.join(segment_name(*first)), bytes)?;
        }
        if let Some(tail) = &mut self.tail {
            tail.segments.remove(0);
            tail.segments.splice(0..0, replaced.map(|(first, _)| first));
        }
        Ok(())
    }
}
