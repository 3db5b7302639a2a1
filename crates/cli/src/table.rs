//! Tables for people.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use crate::terminal::printable;

/// A table with a header. Columns of numbers stand to the right.
pub(crate) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().map(|name| (*name).to_owned()));
    let mut numeric = vec![true; header.len()];
    for row in rows {
        for (cell, numeric) in row.iter().zip(&mut numeric) {
            *numeric &= is_number(cell);
        }
        table.add_row(row.iter().map(|cell| printable(cell)));
    }
    for (column, numeric) in table.column_iter_mut().zip(numeric) {
        if numeric {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    text
}

/// The same as Markdown.
pub(crate) fn markdown(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().map(|name| (*name).to_owned()));
    for row in rows {
        table.add_row(
            row.iter().map(|cell| printable(cell).replace('&', "&amp;").replace('<', "&lt;").replace('|', "\\|")),
        );
    }
    format!("\n{table}\n")
}

/// A number with its unit, several (`3 of 6`), or the dash that stands for none.
fn is_number(cell: &str) -> bool {
    cell == "–"
        || cell.starts_with(|c: char| c.is_ascii_digit())
            && cell.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | '%' | 'k' | 'M' | ' ' | 'o' | 'f'))
}
