use tidegate_sim::Played;
use tidegate_workload::{outcome::Measure, scenario::Scenario};
fn main() {
    let mut args = std::env::args().skip(1);
    let s = Scenario::load(std::path::Path::new(&args.next().unwrap())).unwrap_or_else(|e| { println!("{e}"); std::process::exit(2) });
    let seeds: u64 = args.next().map_or(8, |n| n.parse().unwrap());
    let s = if args.next().is_some() { s.shortened() } else { s };
    for arm in &s.arms {
        let p = Played::new(&s, arm).unwrap_or_else(|e| { println!("{e}"); std::process::exit(2) });
        let all: Vec<_> = (1..=seeds).map(|seed| { let o = p.play(seed).unwrap(); let c = Measure::new(&s, &o).checks(arm);
            if seed == 1 { for (n, c) in o.groups() { let t = c.total().row(); println!("{} {n} {t:?}", arm.name); } }
            c }).collect();
        for i in 0..all[0].len() {
            let c = &all[0][i];
            let m: Vec<String> = all.iter().map(|a| a[i].measured.map_or("-".into(), |x| format!("{x:.3}{}", if a[i].pass {""} else {"!"}))).collect();
            println!("{:10} {:45} {:8} {:16} {:12} {:9} {}", arm.name, c.what, c.subject, c.metric, c.over, c.bound, m.join(" "));
        }
    }
}
