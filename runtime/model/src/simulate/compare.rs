//! Two runs side by side: what a change of tenants brings each of them, as text for people.
//!
//! Owns the words and columns. Must not: compute figures that summaries do not have.

use super::summary::{Summary, TenantSummary};
use super::table::{Rows, listed};
use crate::units::milliseconds;

impl Summary {
    /// This run beside that of the same scenario with a change: a sentence for each, and two lines per tenant.
    pub fn beside(&self, changed: &Self) -> String {
        let header = [
            "tenant",
            "",
            "finished",
            "share max",
            "wait p50",
            "wait p95",
            "wait max",
            "at quota",
            "paused",
            "preempted",
        ];
        let mut rows = Rows::new(&header, 2);
        let shown = listed(changed.tenants.len());
        for after in &changed.tenants[..shown] {
            let before = self.tenants.iter().find(|it| it.name == after.name);
            let (mut name, pair) = (
                after.name.as_str(),
                [("before", before), ("after", Some(after))],
            );
            for (when, tenant) in pair {
                if let Some(tenant) = tenant {
                    rows.push(row(std::mem::take(&mut name), when, tenant));
                }
            }
        }
        if shown < changed.tenants.len() {
            rows.note(changed.tenants.len() - shown, "tenants");
        }
        let mut out = format!(
            "before: {}\nafter:  {}\n\n",
            self.sentence(),
            changed.sentence()
        );
        rows.write_to(&mut out);
        out
    }
}

fn row(name: &str, when: &str, tenant: &TenantSummary) -> Vec<String> {
    let wait = |ms: Option<u64>| ms.map_or_else(|| "-".into(), milliseconds);
    vec![
        name.into(),
        when.into(),
        tenant.counts.finished.to_string(),
        tenant.dominant_share_max.to_string(),
        wait(tenant.waits.map(|waits| waits.p50_ms)),
        wait(tenant.waits.map(|waits| waits.p95_ms)),
        wait(tenant.waits.map(|waits| waits.max_ms)),
        tenant.counts.at_quota.to_string(),
        tenant.counts.paused.to_string(),
        tenant.counts.preempted.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::super::{Scenario, run};
    use crate::resource::{Amount, ResourceName};

    #[test]
    fn a_quota_moves_waits_from_one_tenant_to_the_other() {
        let mut scenario = Scenario::parse(
            r#"{"nodes":[{"name":"n1","resources":{"CPU":2}}],"tasks":[
                {"name":"a","tenant":"A","count":4,"duration_ms":1000,"resources":{"CPU":1}},
                {"name":"b","tenant":"B","count":2,"duration_ms":1000,"resources":{"CPU":1}}]}"#,
        )
        .unwrap();
        let of = |scenario: &Scenario| {
            let Ok(summary) = run(scenario, |_| Ok::<(), Infallible>(()));
            summary
        };
        let before = of(&scenario);
        let quota = &mut scenario.tenant_mut(&"A".parse().unwrap()).unwrap().quota;
        quota.max.insert(ResourceName::CPU, Amount::ONE);
        let expected = "\
before: 6 of 6 tasks finished in 3s
after:  6 of 6 tasks finished in 4s

tenant          finished  share max  wait p50  wait p95  wait max  at quota  paused  preempted
A       before         4          1        1s        2s        2s         0       0          0
        after          4        0.5        1s        3s        3s         3       0          0
B       before         2        0.5       0ms        1s        1s         0       0          0
        after          2        0.5       0ms        1s        1s         0       0          0
";
        assert_eq!(before.beside(&of(&scenario)), expected);
        // One that nobody has named before is due the defaults.
        scenario.tenant_mut(&"C/D".parse().unwrap()).unwrap();
        assert!(
            before
                .beside(&of(&scenario))
                .contains("\nC/D     after          0")
        );
    }
}
