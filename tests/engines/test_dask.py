"""The engine on a real cluster, whose workers come and go."""

import asyncio
import gc
import logging
import pickle
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, Status, Worker

import skdp
from skdp import cli
from skdp.engines import dask_engine, dask_table
from skdp.engines.dask_engine import (
    Adder,
    Answer,
    Cluster,
    ClusterError,
    Partition,
    Partitions,
    WorkersLostError,
)
from skdp.models import losses
from skdp.privacy.encoding import Records
from skdp.privacy.queries import Slopes
from skdp.schema import Categorical, InputError, Numeric, Schema, toml_files

SECRET = "the secret of one person"
SCHEMA = Schema(
    {"age": Numeric(0, 1), "job": Categorical(["a", "b"])},
    target=("y", Categorical([0, 1])),
)


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.random(2000), "job": rng.choice(["a", "b"], 2000)})
    table["y"] = (table["age"] + rng.normal(0, 0.3, 2000) > 0.5).astype(int)
    return table


@pytest.fixture(scope="module")
def folder(frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("parts")
    for i, rows in enumerate(np.array_split(np.arange(2000), 4)):
        frame.iloc[rows].to_csv(path / f"{i}.csv", index=False)
    return path


def model(**options):
    given = {"schema": SCHEMA, "epsilon": 3.0, "n_steps": 8, "random_state": 1}
    return skdp.LogisticRegression(**(given | options))


@pytest.fixture(scope="module")
def undisturbed(frame):
    return model().fit(frame).weights_


def stop_worker(cluster, at=0):
    """Take a worker away, as a failure of its machine would."""
    worker = list(cluster.workers.values())[at]
    cluster.sync(worker.close, executor_wait=False, nanny=False)


def start_worker(cluster):
    async def start():
        return await Worker(cluster.scheduler_address, nthreads=1)

    return cluster.sync(start)


def test_frames_files_and_rows_of_this_process(cluster, frame, folder, undisturbed):
    with Client(cluster):
        for table in (frame, folder, dd.from_pandas(frame, npartitions=3)):
            made = model(engine="dask").fit(table)
            assert (made.weights_ == undisturbed).all()


def test_predictions_of_a_frame(frame):
    made = model().fit(frame)
    there = dd.from_pandas(frame, npartitions=3)
    assert (made.predict_proba(there) == made.predict_proba(frame)).all()


def test_messages_of_dask_stay_hidden_until_the_last_cluster_ends():
    handlers = logging.getLogger("distributed").handlers
    before = [handler.level for handler in handlers]
    one, two = dask_engine._Quiet(), dask_engine._Quiet()
    one.close()
    assert {handler.level for handler in handlers} <= {logging.ERROR}
    two.close()
    assert [handler.level for handler in handlers] == before


def test_large_files_are_split(cluster, frame, undisturbed, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_table, "LEAST_BYTES", 1 << 10)
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=300)
    with Client(cluster):
        for name in ("t.csv", "t.parquet"):
            given = tmp_path / name, None, None, None
            placed, *_ = dask_table.place_files(*given, Cluster())
            assert len(placed._parts) > 4
            made = model(engine="dask").fit(tmp_path / name)
            assert (made.weights_ == undisturbed).all()


def test_an_address_is_enough(cluster, folder, undisturbed, tmp_path, monkeypatch):
    """There is no current client: the engine, or the command, connects itself."""
    address = cluster.scheduler_address.removeprefix("tcp://")
    made = model(engine=f"dask://{address}").fit(folder)
    assert (made.weights_ == undisturbed).all()
    toml_files.write(SCHEMA, tmp_path / "s.toml")
    words = ["--schema", tmp_path / "s.toml", "--epsilon", "3", "--seed", "1"]
    words += ["--cluster", address, "--out", tmp_path / "m", "--quiet"]
    monkeypatch.setattr(sys, "argv", ["skdp", "fit", *map(str, [folder, *words])])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert not stopped.value.code
    words = ["--epsilon", "1", "--seed", "1", "--cluster", address, "--quiet"]
    for command in (["discover"], ["evaluate", tmp_path / "m"]):
        given = map(str, [*command, folder, *words])
        monkeypatch.setattr(sys, "argv", ["skdp", *given])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert not stopped.value.code
    whole = skdp.LogisticRegression(schema=SCHEMA, epsilon=3.0, random_state=1)
    same = skdp.load(tmp_path / "m").weights_ == whole.fit(folder).weights_
    assert same.all()
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "0.2s"}),
        pytest.raises(ClusterError, match="no Dask scheduler at 'localhost:1'"),
    ):
        model(engine="dask://localhost:1").fit(folder)


def test_a_cluster_is_made_if_there_is_none(folder, undisturbed):
    made = model(engine="dask").fit(folder)
    assert (made.weights_ == undisturbed).all()
    with pytest.raises(ValueError, match="No clients found"):
        Client.current()


def test_workers_come_and_go(
    start_cluster, frame, folder, undisturbed, monkeypatch, caplog
):
    """Lost, added, retired: the result has the same bits, and nothing is twice."""
    with (
        start_cluster(2) as cluster,
        Client(cluster) as client,
    ):
        real, homes, added = Partitions.add_up, [], []
        disturbances = {  # by the number of sums before
            3: lambda: stop_worker(cluster),
            6: lambda: added.append(start_worker(cluster)),
            9: lambda: client.retire_workers([added[0].address]),
        }

        def disturbed(self, *arguments, **options):
            disturbances.pop(len(homes), lambda: None)()
            total = real(self, *arguments, **options)
            homes.append({held.worker for held in self._held})
            return total

        monkeypatch.setattr(dask_engine, "LOOK", 0.05)
        monkeypatch.setattr(Partitions, "add_up", disturbed)
        made = model(engine="dask").fit(folder)
        assert [len(some) for some in homes[2:7]] == [2, 1, 1, 1, 2]
        assert homes[-1] == homes[6]  # Dask does not retire a worker that has an actor
        assert added[0].address in homes[-1]
        cluster.sync(added[0].close)
    assert not disturbances
    assert (made.weights_ == undisturbed).all()
    assert len(made.privacy_.transcript) == len(homes)
    assert [e.query for e in made.privacy_.events] == [
        e.query for e in model().fit(frame).privacy_.events
    ]


def test_a_worker_that_is_lost_during_a_sum(start_cluster, folder, monkeypatch):
    monkeypatch.setattr(dask_engine, "LOOK", 0.05)
    with start_cluster(2, protocol="tcp") as cluster, Client(cluster):
        table, *_ = dask_table.place_files(folder, None, None, None, Cluster())
        parts = Partitions(table._cluster, table._parts, _read_nothing)
        assert parts.add_up("apply", _give_one) == 4
        real, began = dask_engine._ask, threading.Event()

        async def noted(held, question):
            began.set()
            return await real(held, question)

        def stop():
            began.wait()
            time.sleep(0.05)
            stop_worker(cluster)

        monkeypatch.setattr(dask_engine, "_ask", noted)
        lost = threading.Thread(target=stop)
        lost.start()
        assert parts.add_up("apply", _give_one_slowly) == 4
        lost.join()
        assert len({held.worker for held in parts._held}) == 1


def test_a_call_to_a_lost_actor_that_dask_never_ends(monkeypatch):
    monkeypatch.setattr(dask_engine, "LOOK", 0.01)
    actor = SimpleNamespace(add_up=lambda *_: asyncio.sleep(60))
    held = SimpleNamespace(actor=actor, future=SimpleNamespace(status="error"))

    async def ask():
        return await asyncio.wait_for(dask_engine._ask(held, ("gram",)), timeout=5)

    assert isinstance(asyncio.run(ask()).error, WorkersLostError)


def _read_nothing(*_):
    return Records(SCHEMA.layout(), ())


def _give_one(records):
    return 1


def _give_one_slowly(records):
    time.sleep(0.2)
    return 1


def test_a_cluster_that_cannot_finish_says_what_was_spent(
    start_cluster, folder, tmp_path, monkeypatch
):
    ledger = skdp.Ledger(tmp_path / "l.db", epsilon=5.0, delta=1e-6)
    monkeypatch.setattr(dask_engine, "LOOK", 0.05)
    monkeypatch.setattr(dask_engine, "PATIENCE", 0.1)
    with (
        start_cluster(1) as cluster,
        Client(cluster),
    ):
        real, sums = Partitions.add_up, []

        def disturbed(self, *arguments, **options):
            sums.append(arguments)
            if len(sums) == 4:
                stop_worker(cluster)
            return real(self, *arguments, **options)

        monkeypatch.setattr(Partitions, "add_up", disturbed)
        with pytest.raises(ClusterError, match="had no workers for") as caught:
            model(engine="dask", random_state=None, ledger=ledger).fit(folder)
    (note,) = caught.value.__notes__
    assert "number of rows" in note
    assert 0 < ledger.spent_epsilon < 3


def test_rows_that_dask_moves_are_read_again(cluster, folder, undisturbed, monkeypatch):
    """A worker that is short of memory would do so, and again and again."""
    real, moved = Adder.__init__, []

    def move(self, partitions, n_threads=None):
        moved.append(pickle.loads(pickle.dumps(partitions)))
        real(self, moved[-1] if len(moved) <= most else partitions, n_threads)

    monkeypatch.setattr(Adder, "__init__", move)
    with Client(cluster):
        most = 2
        made = model(engine="dask").fit(folder)
        assert len(moved) > 3
        assert (made.weights_ == undisturbed).all()
        most = 1000
        monkeypatch.setattr(dask_engine, "ATTEMPTS", 2)
        with pytest.raises(ClusterError, match="2 times in a row"):
            model(engine="dask").fit(folder)


def test_no_value_of_a_record_is_in_a_log_or_a_key(cluster, frame, caplog):
    """Even if a partition is not what it should be, or a task fails on it."""
    table = frame.copy()
    table.loc[0, "job"] = SECRET
    good = dd.from_pandas(table, npartitions=2)
    bad = good.map_partitions(
        lambda part: part.drop(columns="age"), meta=good._meta, enforce_metadata=False
    )
    keys = set()
    submit = Cluster.submit

    def noted(self, task, *arguments, **options):
        future = submit(self, task, *arguments, **options)
        keys.add(future.key)
        return future

    with Client(cluster), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "submit", noted)
        model().fit(good)
        with pytest.raises(ValueError, match=r"In partition 0: .* no column 'age'"):
            model().fit(bad)

        def fail(*arguments):
            raise KeyError(arguments)

        patch.setattr(Adder, "engine", fail)
        said = r"A worker failed with KeyError\.(\n|$)"
        with pytest.raises(RuntimeError, match=said):
            model().fit(good)
    assert SECRET not in caplog.text
    assert "Compute Failed" not in caplog.text
    names = {"-".join(key.split("-")[:2]) for key in keys}
    assert names == {"skdp-read_rows", "skdp-Adder"}
    assert all(len(key.split("-")[-1]) == 32 for key in keys)


def test_no_warning_states_the_size_of_rows(cluster, frame):
    """One long cell would change the size, in a column that no schema names too."""
    table = dd.from_pandas(frame, npartitions=2)
    threshold = {"distributed.admin.large-graph-warning-threshold": "1 B"}
    with Client(cluster), dask.config.set(threshold):  # warnings are errors in tests
        skdp.LogisticRegression(schema=SCHEMA, n_steps=2).fit(table)


def test_no_results_are_kept(cluster, folder):
    with Client(cluster) as client:
        model(engine="dask").fit(folder)
        gc.collect()  # if Dask waited, its errors and their frames are in cycles
        client.sync(lambda: client.scheduler.who_has())  # after earlier messages
        for _ in range(100):
            if not list_kept(cluster):
                break
            time.sleep(0.02)
        assert not list_kept(cluster)


def list_kept(cluster):
    """List the tasks and actors of skdp that a cluster has."""
    actors = [list(worker.state.actors) for worker in cluster.workers.values()]
    keys = sum(actors, list(cluster.scheduler.tasks))
    return [key for key in keys if key.startswith("skdp")]


def test_rows_on_workers_cannot_be_read_here():
    for away in (dask_engine.AwayChunks(), dask_engine.AwayCaps(None)):
        with pytest.raises(ValueError, match="registered without reads_rows"):
            len(away)


def test_rows_do_not_travel_in_a_pickle():
    for answer, error in (
        (Answer(object()), WorkersLostError),
        (Answer(error=InputError("public")), InputError),
    ):
        arrived = pickle.loads(pickle.dumps(Partition(answer))).answer
        assert arrived.total is None
        assert isinstance(arrived.error, error)


def test_a_client_that_is_closed_during_a_fit(cluster, folder, monkeypatch):
    real, sums = Partitions.add_up, []

    def close(self, *arguments, **options):
        sums.append(arguments)
        if len(sums) == 4:
            self.cluster.client.close()
        return real(self, *arguments, **options)

    monkeypatch.setattr(Partitions, "add_up", close)
    address = cluster.scheduler_address.replace("tcp://", "dask://")
    with pytest.raises(ClusterError, match="cannot be reached"):
        model(engine=address).fit(folder)


def test_an_actor_gets_settings_once(cluster, folder, monkeypatch):
    real, sent, n_gradients = Cluster.ask, [], []

    def noted(self, held, questions):
        own = [asked[-2:] for asked in questions if asked[0] == "gradient"]
        n_gradients.extend(own[:1])
        sent.extend(name for name, find_slopes in own if find_slopes is not None)
        return real(self, held, questions)

    monkeypatch.setattr(Cluster, "ask", noted)
    with Client(cluster):
        model(engine="dask").fit(folder)
    assert len(n_gradients) > 8
    assert len(sent) == 2 * len(set(sent)) == 2 * 2  # two actors; capped, and not


def test_an_actor_refuses_the_name_of_other_settings():
    """Or else rows would have other caps than those that the noise is for."""
    adder = Adder([Partition(Answer(_read_nothing()))], n_threads=1)
    slopes = Slopes(loss=losses.Logistic())
    units, at = np.zeros((4, 1)), np.arange(4)
    known = adder.add_up("gradient", units, at, "a", lambda engine: slopes)
    again = adder.add_up("gradient", units, at, "a", None)
    other = adder.add_up("gradient", units, at, "b", None)
    assert (known.error, again.error) == (None, None)
    assert str(other.error) == "A worker failed with RuntimeError."


def test_a_paused_worker_gets_no_rows(start_cluster, folder, undisturbed):
    """Dask pauses workers that are short of memory. They start no tasks then."""
    names = ("target", "spill", "pause", "terminate")
    never = {f"distributed.worker.memory.{name}": False for name in names}
    with (
        dask.config.set(never),  # so Dask itself neither pauses nor resumes them
        start_cluster(2) as cluster,
        Client(cluster),
    ):
        connected, (paused, other) = Cluster(), cluster.workers.values()

        async def pause():
            paused.status = Status.paused

        cluster.sync(pause)
        for _ in range(100):
            if set(connected.find_workers()) == {other.address}:
                break
            time.sleep(0.02)
        assert set(connected.find_workers()) == {other.address}
        every = connected.find_workers(running=False)
        assert set(every) == {paused.address, other.address}
        made = model(engine="dask").fit(folder)
    assert (made.weights_ == undisturbed).all()


def test_rows_that_could_not_be_sent_are_sent_again(
    cluster, frame, undisturbed, monkeypatch
):
    failures = [OSError(), TimeoutError()]
    with Client(cluster) as client:
        real = client.scatter

        def fail(*arguments, **options):
            if failures:
                raise failures.pop()
            return real(*arguments, **options)

        monkeypatch.setattr(client, "scatter", fail)
        made = model(engine="dask").fit(frame)
    assert not failures
    assert (made.weights_ == undisturbed).all()


def test_a_scheduler_that_does_not_answer(cluster, monkeypatch):
    async def sleep(**_):
        await asyncio.sleep(0.5)

    monkeypatch.setitem(cluster.scheduler.handlers, "ncores_running", sleep)
    monkeypatch.setattr(dask_engine, "PATIENCE", 0.05)
    with Client(cluster), pytest.raises(ClusterError, match="cannot be reached"):
        Cluster().find_workers()


def test_a_fit_that_fails_leaves_nothing_on_the_workers(cluster, folder, monkeypatch):
    """Even before the garbage collector finds cycles."""

    def fail(*_):
        raise KeyError

    monkeypatch.setattr(Adder, "engine", fail)
    with Client(cluster):
        gc.collect()
        gc.disable()
        try:
            with suppress(RuntimeError):
                model(engine="dask").fit(folder)
            for _ in range(100):
                if not list_kept(cluster):
                    break
                time.sleep(0.02)
            assert not list_kept(cluster)
        finally:
            gc.enable()


def test_nothing_that_a_sum_raises_reaches_a_log(monkeypatch):
    def stop(*_):
        raise SystemExit(SECRET)

    read = Partition(Answer(Records(SCHEMA.layout(), ())))
    for answer in (
        Adder([read], n_threads=1).add_up("apply", stop),
        dask_engine.call(stop, None),
        dask_engine.read_rows(0, stop, None).answer,
    ):
        assert str(answer.error).endswith("A worker failed with SystemExit.")
        assert SECRET not in repr(vars(answer.error))


def test_sums_of_many_tasks_are_added_in_a_tree(cluster, monkeypatch):
    with Client(cluster):
        connected, used = Cluster(), []
        submit = connected.submit

        def noted(task, *arguments, **options):
            used.append(arguments[0].__name__)
            return submit(task, *arguments, **options)

        monkeypatch.setattr(dask_engine, "FAN_IN", 3)
        monkeypatch.setattr(connected, "submit", noted)
        answers = [submit(dask_engine.call, _give, n, None) for n in range(11)]
        assert connected.total(answers) == list(range(11))
        assert used == ["add_totals"] * (4 + 2)


def _give(table, target):
    return [table]


def test_a_sum_may_travel_for_longer_than_between_two_looks(cluster, monkeypatch):
    monkeypatch.setattr(dask_engine, "LOOK", 0.001)
    with Client(cluster) as client:
        connected, gather = Cluster(), client.gather

        async def be_slow(futures, **options):
            await asyncio.sleep(0.05)
            return await gather(futures, **options)

        monkeypatch.setattr(client, "gather", be_slow)
        task = connected.submit(dask_engine.call, _give, 7, None)
        assert connected.total([task]) == [7]


def test_tasks_that_are_cancelled_start_again(
    cluster, folder, undisturbed, monkeypatch
):
    real, cancelled = Cluster.gather, []

    def cancel_once(self, futures):
        if not cancelled:
            cancelled.extend(futures)
            self.client.cancel(futures)
        return real(self, futures)

    monkeypatch.setattr(Cluster, "gather", cancel_once)
    with Client(cluster):
        made = model(engine="dask").fit(folder)
    assert {future.status for future in cancelled} == {"cancelled"}
    assert (made.weights_ == undisturbed).all()


def test_an_error_names_its_file_and_no_cell(tmp_path):
    def fail(error, table):
        raise error

    path = tmp_path / "a.csv"
    path.write_text(f"age\n{SECRET}\n")
    quoting = UnicodeDecodeError("utf-8", SECRET.encode(), 0, 1, SECRET)
    for error, said in (
        (quoting, "In 'a.csv': A worker failed with UnicodeDecodeError."),
        (ValueError(SECRET), "In 'a.csv': A worker failed with ValueError."),
        (InputError("No column."), "In 'a.csv': No column."),
        (InputError("'a.csv' is bad."), "'a.csv' is bad."),
        (FileNotFoundError(2, "No", str(path)), f"[Errno 2] No: '{path}'"),
        (OSError(SECRET), "In 'a.csv': A worker failed with OSError."),
    ):
        answer = dask_engine.call(partial(fail, error), path)
        assert str(answer.error) == said
        assert SECRET not in repr(vars(answer.error))
    away = dask_engine.call(partial(fail, quoting), tmp_path / "b.csv")
    assert "worker of the cluster does not find the file" in str(away.error)


def test_messages_of_other_libraries_stay_on_the_worker():
    """They may quote a cell, as numpy does if it cannot convert a string."""
    with pytest.raises(ValueError, match="Ann") as raised:
        np.array(["Ann"]).astype(float)
    for error in (raised.value, UnicodeDecodeError("utf-8", b"Ann", 0, 1, "bad")):
        told = dask_engine.make_public(error)
        assert str(told) == f"A worker failed with {type(error).__name__}."
    own = InputError("A table needs columns.")
    assert dask_engine.make_public(own) is own
