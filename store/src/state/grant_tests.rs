//! What is granted beside the region, what gives way for it, and who gets what back.

use super::tests::{CAPACITY, Held, MIB, World, copy, let_go, room, seal, state};
use super::*;
use crate::{
    options::{Beside, Class},
    state::grants::{Claim, Granted, RequestItem},
};

/// A state whose world does nothing but what the disk and the operating system do at once.
fn at_ease(state: &mut State) -> World {
    let mut world = World::default();
    settle(state, &mut world);
    world
}

fn settle(state: &mut State, world: &mut World) {
    world.take(state);
    while world.step(state, 0, false) {}
}

#[test]
fn what_is_granted_is_the_regions_no_more_and_comes_back() {
    let mut state = state(1);
    assert!(state.grant_outside(1));
    assert_eq!(state.budget.used(), MIB, "whole spans");
    assert!(state.grant_outside(MIB - 1), "there is room for that in the same span");
    let mut world = at_ease(&mut state);
    assert_eq!((state.budget.used(), world.holes.len()), (MIB, 1));
    assert!(state.grant_outside(2 * MIB));
    settle(&mut state, &mut world);
    assert_eq!((state.granted_bytes(), state.pinned_bytes(), world.holes.len()), (3 * MIB, 3 * MIB, 3));
    assert!(!state.grant_outside(1) && !state.can_grant_soon(1), "three quarters at most");
    assert_eq!(state.grantable_bytes(), 0);
    state.end_grant(2 * MIB);
    settle(&mut state, &mut world);
    assert_eq!((state.budget.used(), state.budget.free(), world.holes.len()), (MIB, 3 * MIB, 1));
}

#[test]
fn what_nobody_holds_is_spilled_for_a_grant_and_what_is_held_is_not() {
    let mut state = state(1);
    let span = state.allocate(CAPACITY, true).unwrap();
    seal(&mut state, copy(1), span, CAPACITY);
    assert!(!state.grant_outside(MIB));
    assert!(state.can_grant_soon(MIB), "the disk makes room");
    let mut world = at_ease(&mut state);
    assert!(!world.holes.is_empty() || state.table.clean_bytes() > 0, "written early");
    assert!(state.grant_outside(MIB));
    settle(&mut state, &mut world);
    state.delete(&[copy(1)]);
    let scratch = state.allocate(2 * MIB, true).unwrap();
    assert!(!state.grant_outside(2 * MIB) && !state.can_grant_soon(2 * MIB), "somebody works with it");
    assert_eq!(state.grantable_bytes(), MIB);
    state.free(scratch);
    assert!(state.grant_outside(2 * MIB));
}

#[test]
fn with_nowhere_to_spill_to_a_grant_is_denied_at_once() {
    let mut state = state(0);
    let span = state.allocate(CAPACITY, true).unwrap();
    seal(&mut state, copy(1), span, CAPACITY);
    assert!(!state.grant_outside(MIB) && !state.can_grant_soon(MIB));
}

#[test]
fn more_than_there_will_ever_be_is_refused_with_both_sizes() {
    let state = state(1);
    let error = state.can_ever_grant(CAPACITY).unwrap_err();
    assert!(matches!(error, StoreError::NeverGranted { bytes: CAPACITY, most } if most == 3 * MIB), "{error}");
    assert!(state.can_ever_grant(3 * MIB).is_ok());
    let mut state = state;
    let refused = state.request(Class::Arguments, vec![RequestItem::Outside { bytes: CAPACITY }]);
    assert!(matches!(refused, Err(StoreError::NeverGranted { .. })), "{refused:?}");
    let both = vec![room(2 * MIB), RequestItem::Outside { bytes: 2 * MIB + 1 }];
    let refused = state.request(Class::Arguments, both);
    assert!(matches!(refused, Err(StoreError::TooLarge { need, .. }) if need == 5 * MIB), "{refused:?}");
}

#[test]
fn a_grant_that_is_asked_for_with_arguments_comes_with_them_or_not_at_all() {
    let mut state = state(1);
    let scratch = state.allocate(2 * MIB, true).unwrap();
    let ticket = state.request(Class::Arguments, vec![room(MIB), RequestItem::Outside { bytes: MIB + 1 }]).unwrap();
    assert!(matches!(state.claim(ticket), Claim::Wait));
    assert_eq!((state.granted_bytes(), state.budget.used()), (0, 2 * MIB), "it holds nothing while it waits");
    state.free(scratch);
    let Claim::Got { granted, class, bytes, .. } = state.claim(ticket) else { panic!("{state:?}") };
    assert_eq!(granted[1], Granted::Outside { bytes: MIB + 1 });
    assert_eq!((state.granted_bytes(), state.budget.used()), (MIB + 1, 3 * MIB));
    let_go(&mut state, Held { granted, class, bytes });
    let given_up = state.request(Class::Arguments, vec![RequestItem::Outside { bytes: MIB }]).unwrap();
    state.cancel(given_up);
    let _ = at_ease(&mut state);
    assert_eq!((state.granted_bytes(), state.budget.used()), (0, 0));
}

#[test]
fn tables_give_way_to_a_request_and_what_was_granted_does_not() {
    let mut state = state(1);
    state.tell_outside(Beside::Processes, 0, 100 * MIB);
    let mut world = at_ease(&mut state);
    assert_eq!(state.budget.used(), CAPACITY / 4, "a quarter for processes that nobody has asked for");
    assert!(state.grant_outside(MIB));
    settle(&mut state, &mut world);
    assert_eq!((state.budget.used(), state.pinned_bytes()), (2 * MIB, MIB));
    let ticket = state.request(Class::Arguments, vec![room(3 * MIB)]).unwrap();
    settle(&mut state, &mut world);
    assert!(matches!(state.claim(ticket), Claim::Wait), "somebody holds memory, and will let it go");
    state.end_grant(MIB);
    settle(&mut state, &mut world);
    let Claim::Got { granted, class, bytes, .. } = state.claim(ticket) else { panic!("{state:?}") };
    let_go(&mut state, Held { granted, class, bytes });
}

#[test]
fn tables_have_what_grants_leave() {
    let mut state = state(1);
    assert_eq!(state.outside_max(), outside::FREE + CAPACITY / 2);
    assert!(state.grant_outside(3 * MIB));
    assert_eq!(state.outside_max(), outside::FREE + MIB);
    state.tell_outside(Beside::Tables, 0, 100 * MIB);
    let mut world = at_ease(&mut state);
    assert_eq!(state.budget.used(), CAPACITY);
    state.end_grant(3 * MIB);
    settle(&mut state, &mut world);
    assert_eq!(state.budget.used(), CAPACITY / 2);
    assert!(state.grant_outside(MIB));
    state.tell_outside(Beside::Tables, 100 * MIB, 0);
}
