//! Lists that are longer than one answer.

use wasmrun_model::wire::{List, Listed, Rows};

use crate::Client;
use crate::error::Error;

impl Client {
    /// The first `most` rows of a list, or all of them, page after page. Rows that come while this reads may be left out.
    ///
    /// # Errors
    /// When the node is gone.
    pub async fn list_pages(&self, mut list: List, most: usize) -> Result<Listed, Error> {
        list.limit = page(most);
        let mut all = self.list(list.clone()).await?;
        while let Some(after) = all.next.take() {
            let left = most.saturating_sub(len(&all.rows));
            if left == 0 || list.after.as_ref() == Some(&after) {
                all.next = Some(after);
                break;
            }
            list.after = Some(after);
            list.limit = page(left);
            let more = self.list(list.clone()).await?;
            match (&mut all.rows, more.rows) {
                (Rows::Tasks(all), Rows::Tasks(more)) => all.extend(more),
                (Rows::Jobs(all), Rows::Jobs(more)) => all.extend(more),
                (Rows::Audit(all), Rows::Audit(more)) => all.extend(more),
                _ => return Err(Error::Unexpected("pages of another list".into())),
            }
            all.next = more.next;
            for silent in more.silent {
                if !all.silent.contains(&silent) {
                    all.silent.push(silent);
                }
            }
        }
        Ok(all)
    }
}

/// How many rows to ask for.
fn page(most: usize) -> u32 {
    u32::try_from(most.min(Rows::MAX)).unwrap_or(0)
}

/// How many rows of those that come in pages there are.
fn len(rows: &Rows) -> usize {
    match rows {
        Rows::Tasks(rows) => rows.len(),
        Rows::Jobs(rows) => rows.len(),
        Rows::Audit(rows) => rows.len(),
        _ => 0,
    }
}
