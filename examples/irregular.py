"""A collective built by hand: unequal partners, an idle GPU, two steps; scheduled, verified, printed."""

import lumenfarm as lf


def main() -> None:
    gather = lf.PairMatrix(6, sources=[0, 1, 2, 3], destinations=[4, 4, 3, 4], values=[2e6, 1e6, 5e5, 1e6])
    spread = lf.PairMatrix(6, sources=[4, 4, 4], destinations=[0, 1, 2], values=[1e6, 1e6, 3e6])
    job = lf.Collective("gather-and-spread", (lf.Step(gather), lf.Step(spread)), dims=(6,))
    fabric = lf.Fabric(degree=2, link_gbps=400, alpha_ns=500, delta_ns=300, reconfig_delay_ns=5_000)
    answer = lf.synthesize(job, fabric, workers=0, cache="none")
    print(f"{answer.cost_ns:.0f} ns with {answer.reconfigurations} reconfigurations, gap {answer.gap:.1%}")
    for segment in answer.segments:
        print(f"  steps {segment.first + 1}-{segment.stop}: {segment.topology}")
    print("verified" if lf.verify_schedule(answer.schedule, job).ok else "rejected")


if __name__ == "__main__":
    main()
