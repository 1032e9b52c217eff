//! exobus: the control plane.

pub mod backend;
mod bus;
pub mod chaos;
pub mod codec;
#[cfg(feature = "contract")]
pub mod contract;
mod error;
pub mod inproc;
pub mod message;
pub mod nats;
pub mod session;
pub mod subject;

pub use backend::{ServiceEndpoint, ServiceInfo};
pub use bus::{Bus, BusStats, Delivery, FLUSH_DEADLINE, RequestMany, SubscribeOptions, Subscription};
pub use codec::CodecError;
pub use error::BusError;
pub use inproc::InProcessOptions;
pub use message::{Headers, Message};
pub use nats::NatsOptions;
pub use subject::{Address, JobChannel, Pattern, Subject, SubjectError, Subjects};
