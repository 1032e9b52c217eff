//! A second name of an object: its bytes outlive what the first name belongs to, without a copy.

use super::{ExtentKey, Freed, Object, ObjectKey, Table};
use crate::ids::CopyId;

/// What became of an object when one of its names was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unnamed {
    /// It had no other one, and is gone.
    Gone,
    /// It is called as before in its entry.
    Stays,
    /// Its entry is called by what was its second name, and so must be what files say of it.
    Renamed(CopyId),
}

impl Table {
    /// Gives an object a second name. False: it has one, which is another.
    pub fn name_also(&mut self, key: ObjectKey, name: CopyId) -> bool {
        match self.second_names.get(&key) {
            Some(known) => *known == name,
            None => {
                let taken = self.by_id.insert(name, key);
                assert!(taken.is_none(), "{name} is the name of another object");
                self.second_names.insert(key, name);
                true
            }
        }
    }

    /// Whether the object has two names.
    pub fn has_second_name(&self, key: ObjectKey) -> bool {
        self.second_names.contains_key(&key)
    }

    /// All names of an object.
    pub fn names(&self, key: ObjectKey) -> impl Iterator<Item = CopyId> {
        [Some(self.objects.get(key).id()), self.second_names.get(&key).copied()].into_iter().flatten()
    }

    /// Takes a name away, and with its last one the object.
    pub fn unname(&mut self, id: &CopyId, freed: &mut Freed) -> Option<(ObjectKey, Unnamed)> {
        let key = self.key(id)?;
        let Some(second) = self.second_names.remove(&key) else {
            self.remove(key, freed);
            return Some((key, Unnamed::Gone));
        };
        self.by_id.remove(id);
        if second == *id {
            return Some((key, Unnamed::Stays));
        }
        self.objects.get_mut(key).id = Object::split(second);
        Some((key, Unnamed::Renamed(second)))
    }

    /// An extent of the object that is in memory only, and may be written now.
    pub fn unwritten_extent(&self, key: ObjectKey) -> Option<ExtentKey> {
        self.extents_of(key)
            .find(|(_, extent)| extent.resident() && extent.disk().is_none() && !extent.writing)
            .map(|(extent, _)| extent)
    }
}
