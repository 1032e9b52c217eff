//! Objects with two names, and objects that are to be on disk: for what outlives the group that it was made in.

use super::State;
use crate::{
    error::StoreError,
    ids::CopyId,
    meta::{ObjectMeta, Parts},
    table::{ExtentKey, Freed, Unnamed},
};

/// How far an object is on its way to disk.
#[derive(Debug)]
pub(crate) enum PutAway {
    /// All of it is there.
    Done,
    /// Something is written, or is going to be.
    Goes,
    /// There is nowhere to write to.
    NoRoom,
}

impl State {
    /// Gives an object a second name, under which it stays when the first one is deleted. The same again changes nothing.
    ///
    /// # Errors
    /// `NotFound`: it is not here, or parts of it were released. `Conflict`: it has another second name, or there is another
    /// object of that name.
    pub fn name_also(&mut self, id: &CopyId, name: CopyId) -> Result<ObjectMeta, StoreError> {
        let (key, ..) = self.find(id, Parts::All)?;
        match self.table.key(&name) {
            Some(known) if known != key => return Err(StoreError::Conflict(name)),
            Some(_) => {}
            None if !self.table.name_also(key, name) => return Err(StoreError::Conflict(name)),
            None => {}
        }
        Ok(self.meta(&name).expect("named just now"))
    }

    /// Gives an object a second name that another object may have, whose it is no more: that one goes with it, if it has no other. All of it, or
    /// nothing.
    ///
    /// # Errors
    /// `NotFound`: it is not here, or parts of it were released. `Conflict`: it has another second name.
    pub fn move_name(&mut self, id: &CopyId, name: CopyId) -> Result<ObjectMeta, StoreError> {
        let (key, ..) = self.find(id, Parts::All)?;
        if self.table.key(&name) != Some(key) {
            if self.table.has_second_name(key) {
                return Err(StoreError::Conflict(name));
            }
            self.delete(&[name]);
        }
        self.name_also(id, name)
    }

    /// Takes a name away, and with its last one the object.
    pub(super) fn unname(&mut self, id: &CopyId, freed: &mut Freed) {
        self.put_away.remove(id);
        let Some((key, Unnamed::Renamed(name))) = self.table.unname(id, freed) else { return };
        let places: Vec<_> = self.table.extents_of(key).filter_map(|(_, extent)| extent.disk()).collect();
        for place in places {
            self.files.rename(place, name);
        }
    }

    /// Begins to bring an object to disk, and says how far it is. With `footers`, what says whose the bytes are is to be there, too.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn put_away(&mut self, id: &CopyId, footers: bool) -> Result<PutAway, StoreError> {
        let key = self.table.key(id).ok_or(StoreError::NotFound(*id))?;
        let on_disk = self.table.extents_of(key).all(|(_, extent)| extent.disk().is_some());
        if !on_disk {
            if !self.files.usable() {
                self.put_away.remove(id);
                return Ok(PutAway::NoRoom);
            }
            if self.put_away.insert(*id) {
                self.pump();
            }
            return Ok(PutAway::Goes);
        }
        self.put_away.remove(id);
        if !footers {
            return Ok(PutAway::Done);
        }
        let files: Vec<_> = self.table.extents_of(key).filter_map(|(_, extent)| extent.disk()).collect();
        if files.iter().all(|place| self.files.is_settled(place.file)) {
            return Ok(PutAway::Done);
        }
        self.finish_files();
        Ok(PutAway::Goes)
    }

    /// Who wanted it does not wait any more.
    pub fn put_away_no_more(&mut self, id: &CopyId) {
        self.put_away.remove(id);
    }

    /// The next extent of those that are to be written whatever the levels say.
    pub(super) fn next_to_put_away(&self) -> Option<ExtentKey> {
        let keys = self.put_away.iter().filter_map(|id| self.table.key(id));
        keys.filter_map(|key| self.table.unwritten_extent(key)).next()
    }
}
