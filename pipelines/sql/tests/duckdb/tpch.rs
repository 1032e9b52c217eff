//! The queries of TPC-H, over its data at a scale of a hundredth.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use tpchgen::csv::{CustomerCsv, LineItemCsv, NationCsv, OrderCsv, PartCsv, PartSuppCsv, RegionCsv, SupplierCsv};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen::q_and_a::QueryAndAnswer;

use super::{Asked, World, asked};

const SCALE: f64 = 0.01;

/// Numbers of queries, and what they are asked about: some of it otherwise than at scale 1, so that each answers something.
const ASKED: [(i32, &[&str]); 21] = [
    (1, &["90"]),
    (2, &["15", "BRASS", "EUROPE"]),
    (3, &["BUILDING", "1995-03-15"]),
    (4, &["1993-07-01"]),
    (5, &["ASIA", "1994-01-01"]),
    (6, &["1994-01-01", "0.06", "24"]),
    (7, &["FRANCE", "GERMANY"]),
    (8, &["BRAZIL", "AMERICA", "ECONOMY ANODIZED STEEL"]),
    (9, &["green"]),
    (10, &["1993-10-01"]),
    (11, &["GERMANY", "0.0001"]),
    (12, &["MAIL", "SHIP", "1994-01-01"]),
    (13, &["special", "requests"]),
    (14, &["1995-09-01"]),
    (15, &["1996-01-01"]),
    (16, &["Brand#45", "MEDIUM POLISHED", "49", "14", "23", "45", "19", "3", "36", "9"]),
    (17, &["Brand#23", "MED BOX"]),
    (18, &["200"]),
    (19, &["Brand#12", "Brand#23", "Brand#34", "1", "10", "20"]),
    (20, &["forest", "1994-01-01", "CANADA"]),
    (22, &["13", "31", "23", "29", "30", "18", "17"]),
];

/// The text of a query.
fn text((number, about): &(i32, &[&str])) -> String {
    let query = QueryAndAnswer::new(*number, 1.0).unwrap();
    let about = (1..).zip(*about).collect::<Vec<_>>();
    let text =
        about.iter().rev().fold(query.query().to_owned(), |text, (at, about)| text.replace(&format!(":{at}"), about));
    let text = text.trim().trim_end_matches(';').replace("day (3)", "day");
    match text.split_once(';') {
        // What is a view there.
        Some((view, query)) => {
            let view = view.replace("create view revenue:s", "with revenue").replacen(" as", " as (", 1);
            let query = query.split(';').next().unwrap_or_default();
            format!("{view}) {}", query.replace("revenue:s", "revenue"))
        }
        None => text,
    }
}

/// A table as text, with its columns beside it.
fn write<R: Display>(folder: &Path, name: &str, header: &str, columns: &str, rows: impl Iterator<Item = R>) {
    std::fs::write(folder.join(format!("{name}.sql")), columns).unwrap();
    let mut file = BufWriter::new(File::create(folder.join(format!("{name}.tbl"))).unwrap());
    writeln!(file, "{header}").unwrap();
    rows.for_each(|row| writeln!(file, "{row}").unwrap());
    file.flush().unwrap();
}

/// All tables.
fn make(folder: &Path) {
    let text = |names: &str| names.split(' ').map(|name| format!("{name} VARCHAR")).collect::<Vec<_>>().join(", ");
    let money = |name: &str| format!("{name} DECIMAL(15, 2)");
    let region = RegionGenerator::new(SCALE, 1, 1);
    write(
        folder,
        "region",
        RegionCsv::header(),
        &format!("r_regionkey BIGINT, {}", text("r_name r_comment")),
        region.iter().map(RegionCsv::new),
    );
    let nation = NationGenerator::new(SCALE, 1, 1);
    let columns = "n_nationkey BIGINT, n_name VARCHAR, n_regionkey BIGINT, n_comment VARCHAR";
    write(folder, "nation", NationCsv::header(), columns, nation.iter().map(NationCsv::new));
    let part = PartGenerator::new(SCALE, 1, 1);
    let columns = format!(
        "p_partkey BIGINT, {}, p_size INTEGER, p_container VARCHAR, {}, p_comment VARCHAR",
        text("p_name p_mfgr p_brand p_type"),
        money("p_retailprice")
    );
    write(folder, "part", PartCsv::header(), &columns, part.iter().map(PartCsv::new));
    let supplier = SupplierGenerator::new(SCALE, 1, 1);
    let columns = format!(
        "s_suppkey BIGINT, {}, s_nationkey BIGINT, s_phone VARCHAR, {}, s_comment VARCHAR",
        text("s_name s_address"),
        money("s_acctbal")
    );
    write(folder, "supplier", SupplierCsv::header(), &columns, supplier.iter().map(SupplierCsv::new));
    let customer = CustomerGenerator::new(SCALE, 1, 1);
    let columns = format!(
        "c_custkey BIGINT, {}, c_nationkey BIGINT, c_phone VARCHAR, {}, {}",
        text("c_name c_address"),
        money("c_acctbal"),
        text("c_mktsegment c_comment")
    );
    write(folder, "customer", CustomerCsv::header(), &columns, customer.iter().map(CustomerCsv::new));
    let supplies = PartSuppGenerator::new(SCALE, 1, 1);
    let columns = format!(
        "ps_partkey BIGINT, ps_suppkey BIGINT, ps_availqty INTEGER, {}, ps_comment VARCHAR",
        money("ps_supplycost")
    );
    write(folder, "partsupp", PartSuppCsv::header(), &columns, supplies.iter().map(PartSuppCsv::new));
    let orders = OrderGenerator::new(SCALE, 1, 1);
    let columns = format!(
        "o_orderkey BIGINT, o_custkey BIGINT, o_orderstatus VARCHAR, {}, o_orderdate DATE, {}, o_shippriority INTEGER, o_comment VARCHAR",
        money("o_totalprice"),
        text("o_orderpriority o_clerk")
    );
    write(folder, "orders", OrderCsv::header(), &columns, orders.iter().map(OrderCsv::new));
    let items = LineItemGenerator::new(SCALE, 1, 1);
    let columns = format!(
        "l_orderkey BIGINT, l_partkey BIGINT, l_suppkey BIGINT, l_linenumber INTEGER, {}, {}, {}, {}, {}, l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE, {}",
        money("l_quantity"),
        money("l_extendedprice"),
        money("l_discount"),
        money("l_tax"),
        text("l_returnflag l_linestatus"),
        text("l_shipinstruct l_shipmode l_comment")
    );
    write(folder, "lineitem", LineItemCsv::header(), &columns, items.iter().map(LineItemCsv::new));
}

#[tokio::test]
async fn queries_of_tpch_are_answered_as_duckdb_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in");
    std::fs::create_dir(&path).unwrap();
    make(&path);
    let texts: Vec<String> = ASKED.iter().map(text).collect();
    std::fs::write(folder.path().join("queries.sql"), texts.join("\n---\n")).unwrap();
    let queries = folder.path().join("queries.sql");
    let (tables, queries) = asked(&["ask", path.to_str().unwrap(), queries.to_str().unwrap()]);
    let world = World::new(&path, tables, (2, 512 << 20));
    let mut failed = Vec::new();
    for ((number, _), asked) in ASKED.iter().zip(queries) {
        let asked = Asked { ordered: asked.sql.contains("order by"), ..asked };
        assert!(!asked.rows.is_empty(), "query {number} answers nothing, so it shows nothing: {}", asked.sql);
        if let Some(what) = world.difference(&asked).await {
            eprintln!("query {number}: {}\n  {what}", asked.sql);
            failed.push(number);
        }
    }
    // There is no operator for all of the one that is left.
    let refused = world.ask(&text(&(21, &["SAUDI ARABIA"]))).await.unwrap_err().to_string();
    world.node.stop();
    // Where the first EXISTS of it is.
    let said = "line 14, column 6: a join of kind semi with a condition of both tables beside what is equal";
    assert!(refused.contains(said), "{refused}");
    assert!(failed.is_empty(), "answers are others than DuckDB's for queries {failed:?}");
}
