//! The command line, run as people run it, and what the workspace promises of itself.

mod bad_input;
mod commands;
mod config_files;
mod crate_graph;
mod dev;
mod explain;
mod fencing;
mod formats;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod isolation;
mod jobs;
mod limits;
mod made_files;
mod matrix;
mod memory;
mod output;
mod own_node;
mod paths;
mod recovery;
mod resume;
mod shipped;
mod sort;
mod support;
mod tables;
mod tables_bad_input;
mod tables_look;
mod tables_many_files;
mod tables_matrix;
mod tables_read;
mod tables_records;
mod tables_verbs;
mod tokens;
mod tour;
