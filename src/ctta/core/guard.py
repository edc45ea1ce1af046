"""The guard: watches an adapter, and takes back what it has learned if that does harm."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ctta.base.errors import InputError
from ctta.base.randomness import mix
from ctta.core import health, inputs, optim, prior
from ctta.core import probe as probes
from ctta.core import statistics as norms
from ctta.core.adapter import Adapter, Step
from ctta.core.export import Averaged, frozen_copy
from ctta.core.guard_state import Event, GuardMemory, Snapshot
from ctta.core.losses import averaged
from ctta.core.shares import AT_HOME
from ctta.core.turns import adapts_in_turn, in_turn

log = logging.getLogger("ctta")

FIRST = 10  # so many batches are all compared, then one of `every`
APART = 50  # batches between two snapshots
KEPT = 3  # snapshots
RETRIAL = 512  # samples that are compared after an alarm before the adapter's answers are given
AGAIN = 300  # an alarm within so many batches of the last one goes one rung further
CALM, CALM_BATCHES = 0.1, 200  # the third rung learns at this rate for so long
DEAD = 16  # blank samples, after which a person is told

Verdict = Literal["healthy", "watched", "harmful", "frozen"]
VERDICTS: tuple[Verdict, ...] = ("healthy", "watched", "harmful", "frozen")
RUNGS = (
    "went back to the last healthy state",
    "went back to the healthy state before that",
    f"went back to the source, and learns at {CALM:g} of its rate for {CALM_BATCHES} batches",
    "went back to the source, and learns no more; reset() begins again",
)


class Guard(GuardMemory):
    """Makes an adapter safe: `logits = guard(x)`.

    Every few batches, and all of them while there is evidence of harm, the adapter's prediction is compared with that
    of the source's weights (see `core.health`). The guard answers with the latter while there is much evidence or the
    adapter narrows its answers, for the first samples, for some after an alarm, and while auto statistics see no sign
    that the domain has shifted: there is nothing to gain then. If the stream's statistics make the source's weights
    less sure, or if the stream holds few of the classes, the unadapted model has a say in the answer, or gives it
    alone. It always does for blank samples, of one value per channel or faint noise, and nothing is learned from them.
    If the evidence is enough, what was learned is taken back: to the last healthy state, at the next alarm to an older
    one, then to the source with a smaller rate, then for good. Small batches are learned from at a part of the rate,
    and so are batches of few classes if no BatchNorm layer follows them, see `core.prior`.

    With a few clean samples of the source domain, `prepare(batches)`, it also looks now and then whether the adapter
    still knows them, and tells once if the stream is not like them (see `core.probe`).

    adapter    any adapter; the guard has the same methods
    every      one comparison per so many batches, as long as there is no evidence
    on_event   called with each `Event`; they are also logged as warnings, and kept in `events`
    """

    @property
    def verdict(self) -> Verdict:
        """How the adapter is, as far as the last comparison says."""
        if self.state.frozen:
            return "frozen"
        if self.state.evidence > health.LIMIT:
            return "harmful"
        narrow = self.state.narrowing > health.NARROW
        return "watched" if narrow or self.state.evidence > health.WATCH else "healthy"

    def forward(self, x: Tensor) -> Tensor:
        return self.step(x).logits

    @adapts_in_turn
    def step(self, x: Tensor) -> Step:
        """Predict, adapt, and report what happened; take back what does harm."""
        if (blank := self._blank(x)) is None:
            return self._step(x)
        unadapted = self.adapter.source(x[blank])
        if blank.all():
            self._count_blank(len(x))
            known = {"idle": 1.0, "heard": 1.0, "blank": float(len(x))}
            return self._answer(unadapted, Step(unadapted, self._info(known)))
        step = self._step(x[~blank])
        self._count_blank(len(unadapted))
        logits = filled(blank, step.logits, unadapted)
        samples = {name: filled(blank, part, torch.zeros_like(part[:1])) for name, part in step.samples.items()}
        reference, source = (
            part if part is None else filled(blank, part, unadapted) for part in (step.reference, step.source)
        )
        samples["confidence"] = logits.softmax(1).amax(1)
        return Step(logits, {**step.info, "blank": blank.sum()}, samples, reference, source)

    def _count_blank(self, samples: int) -> None:
        """Tell once of samples that show nothing."""
        before, count = self.state.blank, self.state.blank + samples
        with self._all_or_nothing():
            self.state = replace(self.state, blank=count)
            if before < DEAD <= count:
                words = (
                    f"{count} samples so far show nothing: one value per channel, or noise alone, as from a dead "
                    "sensor. The unadapted model answers for them; nothing is learned from them. Look at the sensor."
                )
                self._note(Event(self.adapter.batches, "blank", words))

    def _blank(self, x: Tensor) -> Tensor | None:
        """Which samples are blank: they tell nothing of a domain, so the unadapted model answers for them."""
        inputs.check_form(x, *self.adapter.placement)
        return inputs.blank_samples(x, pixels=self.adapter.inputs == "auto")

    def _step(self, x: Tensor) -> Step:
        """`step` for samples that are not blank."""
        if self._examines:
            with self._all_or_nothing(), self.adapter.all_or_nothing():
                self._examine(self.adapter.batches)
        with self._all_or_nothing():
            if self.state.frozen:
                reference, source = self.adapter.reference(x, follow=True), self.adapter.source(x)
                self.state = replace(self.state, heard=float(self._stand(reference, source)))
                return self._safe(Step(reference, self._info({}), reference=reference, source=source))
            self._set_rate(self.adapter.batches, len(x))
            judge, compares = partial(self._judge, x, self.adapter.batches), self._compares
            source_too = compares or self.state.heard > 0
            return self.adapter.step(x, reference=compares, source=source_too, corrected=False, then=judge)

    @property
    def _compares(self) -> bool:
        """Whether the next batch is compared; all are if the reference has statistics that follow the stream."""
        batch = self.adapter.batches
        now = self._distrusts or self.state.evidence > 0 or batch < FIRST or batch % self.every == 0
        return now or self.adapter.statistics in norms.FOLLOWING

    def _judge(self, x: Tensor, batch: int, step: Step) -> Step:
        """Take in what a batch says, and do what follows from it; gives the step with the safe answer."""
        self._bet(step.source, batch)
        found = {} if step.reference is None else self._compare(step, x, batch)
        step = self._safe(replace(step, info={**step.info, **self._info(found)}))
        if self.verdict == "harmful":
            self._roll_back(batch)
        elif found and not self._unproven and self.state.evidence == 0 and batch - self._last_snapshot >= APART:
            self.snapshots = [*self.snapshots[1 - KEPT :], Snapshot(batch, self.adapter.learned())]
        return step

    @property
    def _last_snapshot(self) -> int:
        return self.snapshots[-1].batch if self.snapshots else 0

    def _answer(self, logits: Tensor, step: Step) -> Step:
        """A step that answers with these logits instead of its own."""
        confidence = logits.softmax(1).amax(1)
        info = {**step.info, "confidence": confidence.mean()}
        return replace(step, logits=logits, info=info, samples={**step.samples, "confidence": confidence})

    def _safe(self, step: Step) -> Step:
        """The step with the answer that is the safe one."""
        logits = step.logits
        if self._distrusts:
            assert step.reference is not None
            logits = step.reference
        if self.state.heard:
            assert step.source is not None
            logits = step.source if self._alone else averaged(torch.stack([logits, step.source]))
        step = self._answer(logits, step) if self._distrusts or self.state.heard else step
        return replace(step, logits=self.adapter.correct(step.logits))

    def _stand(self, reference: Tensor, source: Tensor) -> Tensor:
        """Take in what the unadapted model and the reference say of a batch; gives the weight of the former, 0-d."""
        self.standing = (self.standing or health.Standing.start(reference.shape[1])).with_batch(reference, source)
        return self.standing.heard()

    @in_turn
    def predict(self, x: Tensor) -> Tensor:
        """The prediction with the current weights. Nothing is learned, no state changes."""
        if (blank := self._blank(x)) is None:
            return self._predict(x)
        unadapted = self.adapter.source(x[blank])
        return unadapted if blank.all() else filled(blank, self._predict(x[~blank]), unadapted)

    def _predict(self, x: Tensor) -> Tensor:
        """`predict` for samples that are not blank."""
        if self._alone:
            return self.adapter.correct(self.adapter.source(x))
        logits = self.adapter.reference(x) if self._distrusts else self.adapter.predict(x, corrected=False)
        if self.state.heard:
            logits = averaged(torch.stack([logits, self.adapter.source(x)]))
        return self.adapter.correct(logits)

    @property
    def _alone(self) -> bool:
        """Whether the unadapted model answers alone."""
        return self.state.heard == 1

    @property
    def _distrusts(self) -> bool:
        """Whether the prediction is that of the source's weights."""
        return self._unproven or self.state.doubt > AT_HOME

    @property
    def _unproven(self) -> bool:
        """Whether what was learned is not known to be healthy."""
        return self.verdict != "healthy" or self.state.trial > 0

    @in_turn
    def export(self, x: Tensor | None = None) -> nn.Module:
        """A plain module that answers as `predict` does, see `Adapter.export`."""
        adapter, model = self.adapter, self.adapter.source_model
        heard = []
        if self.state.heard:
            with norms.source_statistics(model, adapter.statistics):
                heard = [frozen_copy(adapter, model, None)]
        if not self._alone:
            heard.append(frozen_copy(adapter, model, x) if self._distrusts else adapter.export(x, corrected=False))
        return adapter.with_correction(Averaged(*heard) if len(heard) == 2 else heard[0])

    def source(self, x: Tensor) -> Tensor:
        """The prediction of the unadapted model."""
        return self.adapter.source(x)

    def prepare(self, source: Iterable[Tensor | tuple[Tensor, Tensor]]) -> None:
        """Show the guard clean samples of the source domain, x or (x, y) batches; the adapter too, if it needs any.

        A few hundred of all classes are enough; of more than the first thousand the guard keeps nothing.
        """
        gathered = probes.Gatherer()
        batches = self._gathering(source, gathered)
        if self.adapter.source_for(self.adapter.config.asdict()) != "none":
            self.adapter.prepare(batches)
        else:
            for _ in batches:
                if gathered.full:
                    break
        self.probe, self.bet = gathered.probe(), probes.Bet()
        if self.probe is None:
            log.warning(
                "guard of %s: fewer than %d clean samples tell nothing. Give a few hundred.",
                self.adapter.name,
                probes.FEWEST,
            )

    def _gathering(self, source: Iterable[Any], gathered: probes.Gatherer) -> Iterator[Any]:
        """The batches of source data, from which the first samples are gathered."""
        for batch in source:
            x, y = (batch, None) if isinstance(batch, Tensor) else batch
            if y is None and self.adapter.source_for(self.adapter.config.asdict()) != "none":
                raise InputError(f"{type(self.adapter).__name__} needs source data with labels. Give (x, y) batches.")
            if not gathered.full:
                gathered.add(x, y, self.adapter.source(x))
            yield x, y

    def begin_domain(self) -> None:
        """A hint that the stream has moved to another domain."""
        self.adapter.begin_domain()

    @in_turn
    def reset(self) -> None:
        """Everything goes back to the start."""
        self.adapter.reset()
        self._begin()

    def _compare(self, step: Step, x: Tensor, batch: int) -> dict[str, float]:
        """Take in what one batch says; gives the signs by name."""
        adapter, logits, reference, source = self.adapter, step.logits, step.reference, step.source
        assert reference is not None
        assert source is not None
        with torch.no_grad():
            self.means = (self.means or health.Means.uniform(logits.shape[1])).with_batch(logits, reference)
            found = {"excess": health.excess(logits, reference), **health.signs(logits, reference)}
            found |= {"narrowing": self.means.narrowing(), "doubt": step.info.get("doubt", logits.new_zeros(()))}
            found["heard"] = self._stand(reference, source)
            if not adapter.follows_batch(x):
                found["breadth"] = prior.breadth(prior.class_mix(reference.softmax(1)), len(x))
            weights, start = adapter.trained_and_source()
            if weights:
                found["distance"] = health.distance(weights, start)
            numbers = torch.stack([value.to(torch.float32) for value in found.values()]).tolist()
        signs = dict(zip(found, numbers, strict=True))
        evidence = max(0.0, self.state.evidence + signs.pop("excess"))
        confidence = 0.9 * self.state.confidence + 0.1 * signs["reference_confidence"]
        since = batch if evidence == 0 else self.state.since
        trial = max(0, self.state.trial - len(x))
        known = {"evidence": evidence, "narrowing": signs["narrowing"], "doubt": signs.pop("doubt"), "since": since}
        known |= {"breadth": signs.pop("breadth", 1.0), "confidence": confidence}
        self.state = replace(self.state, **known, heard=signs["heard"], trial=trial)
        if health.is_lost(confidence, logits.shape[1]) and not self.state.lost:
            self.state = replace(self.state, lost=True)
            words = (
                f"the source model's mean confidence is {confidence:.2f}: unless it is always so unsure, it is lost "
                "here, adapted or not. A roll-back does not help; look at the data."
            )
            self._note(Event(batch, "lost", words))
        return {**signs, "evidence": evidence}

    @property
    def _examines(self) -> bool:
        """Whether it is time, every so many batches, to look whether the clean samples are still known."""
        batch = self.adapter.batches
        return self.probe is not None and not self.state.frozen and batch > 0 and batch % probes.APART == 0

    def _examine(self, batch: int) -> None:
        """Take back what was learned since the adapter last knew the clean samples, if it knows them no more."""
        assert self.probe is not None
        device, _ = self.adapter.placement
        if found := self.probe.forgotten(self.adapter.predict, self.adapter.reference, device):
            self.state = replace(self.state, since=min(self.state.since, self.state.probed))
            self._roll_back(batch, f" ({found})")
        self.state = replace(self.state, probed=batch)

    def _bet(self, source: Tensor | None, batch: int) -> None:
        """Bet that a batch is not like the clean samples; after it is won and told, no more."""
        if self.probe is None or self.bet.won or source is None or batch % self.every:
            return
        random = torch.Generator().manual_seed(mix(self.adapter.seed, batch))
        found, draws = probes.bins(source), torch.rand(len(source), generator=random, device="cpu").tolist()
        self.bet = self.bet.place(found, draws, self.probe.clean)
        if self.bet.won:
            words = (
                "the stream is not like the clean samples (an error of this sentence has a probability of at most "
                f"{probes.FALSE_ALARMS:.0%}). This is no sign of harm."
            )
            self._note(Event(batch, "changed", words))

    def _roll_back(self, batch: int, found: str = "") -> None:
        """Take one rung of the ladder."""
        rung = self.state.rung + 1 if self.state.alarm >= 0 and batch - self.state.alarm < AGAIN else 0
        healthy = [snapshot for snapshot in self.snapshots if snapshot.batch < self.state.since]
        self.snapshots = healthy[: len(healthy) - rung] if rung < 2 else []
        self._take_back()
        if not self.snapshots:
            rung = max(rung, 2)  # at the same rate it would take the same way
        last = rung == len(RUNGS) - 1
        words = f"learning has made the model worse since batch {self.state.since}{found}: it {RUNGS[rung]}"
        self.state = replace(
            self.state,
            evidence=0.0,
            narrowing=0.0,
            rung=rung,
            alarm=batch,
            since=batch,
            frozen=last,
            trial=RETRIAL,
            calm_until=batch + CALM_BATCHES if rung == 2 else self.state.calm_until,
        )
        self._note(Event(batch, "frozen" if last else "roll-back", f"{words}."))

    @in_turn
    def roll_back(self) -> None:
        """Take back what was learned since the last healthy state, because somebody asks for it; again: one before."""
        batch = self.adapter.batches
        with self._all_or_nothing(), self.adapter.all_or_nothing():
            self.snapshots = self.snapshots[: len(self.snapshots) - (self.state.alarm == batch)]
            self._take_back()
            self.state = replace(self.state, evidence=0.0, narrowing=0.0, alarm=batch, since=batch, trial=RETRIAL)
            place = f"the healthy state of batch {self.snapshots[-1].batch}" if self.snapshots else "the source"
            self._note(Event(batch, "roll-back", f"somebody asked for it: it went back to {place}."))

    def _take_back(self) -> None:
        """The adapter goes back to the last snapshot, or to the source if there is none."""
        self.adapter.restore_source()
        if self.snapshots:
            self.adapter.relearn(self.snapshots[-1].learned)
        self.means = None

    @in_turn
    def resume(self) -> None:
        """Learn again after the last rung of the ladder, on trial as after every alarm."""
        self.state = replace(self.state, frozen=False, rung=-1, alarm=-1, trial=RETRIAL)

    def _set_rate(self, batch: int, samples: int) -> None:
        config, calm = self.adapter.config, CALM if batch < self.state.calm_until else 1.0
        if self.adapter.optimizer is not None and hasattr(config, "lr"):
            share = 1.0 if self.adapter.paced else optim.pace(samples) * self.state.breadth**2
            optim.set_rate(self.adapter.optimizer, config.lr * calm * share)

    def _info(self, signs: Mapping[str, float]) -> dict[str, Tensor]:
        """The verdict as a number, whether the adapter answers, and the signs of harm, if this batch was compared."""
        known = {"guard": float(VERDICTS.index(self.verdict)), "trusted": float(not self._distrusts)}
        known |= {"heard": self.state.heard, **signs}
        return {name: torch.tensor(value) for name, value in known.items()}


def filled(where: Tensor, others: Tensor, rows: Tensor) -> Tensor:
    """One row per entry of `where`: these rows if it is true, the others if not."""
    whole = others.new_empty(len(where), *others.shape[1:])
    whole[where], whole[~where] = rows.to(others.dtype), others
    return whole


Adapting = Adapter | Guard
