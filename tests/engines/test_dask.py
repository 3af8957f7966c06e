"""The engine on a real cluster, whose workers come and go."""

import asyncio
import gc
import logging
import pickle
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, Status, Worker

import skdp
from skdp import cli
from skdp.engines import (
    dask_client,
    dask_engine,
    dask_rows,
    dask_table,
    dask_tasks,
    dask_tree,
)
from skdp.engines.dask_client import ClusterError
from skdp.engines.dask_engine import Partitions
from skdp.engines.dask_tree import Branch
from skdp.privacy.encoding import Records
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


def start_cluster(n_workers, **options):
    """Start workers with one thread each, in this process."""
    return LocalCluster(
        processes=False,
        n_workers=n_workers,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        worker_dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
        **options,
    )


@pytest.fixture(scope="module")
def cluster():
    """Two workers in this process, behind a port of this machine."""
    with start_cluster(2, protocol="tcp") as made:
        yield made


def model(**options):
    given = {"schema": SCHEMA, "epsilon": 3.0, "n_steps": 12, "random_state": 1}
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
    one, two = dask_client._Quiet(), dask_client._Quiet()
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
            placed, *_ = dask_table.place_files(*given, dask_client.Cluster())
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


def test_workers_come_and_go(frame, folder, undisturbed, monkeypatch):
    """Lost, empty, added, moved: the result has the same bits, and nothing is twice."""
    with (
        start_cluster(2) as cluster,
        Client(cluster) as client,
    ):
        real, homes, added = Partitions.add_up, [], []

        def add():
            added.append(start_worker(cluster))
            monkeypatch.setattr(dask_engine, "LOOK_FOR_MORE", 0.0)

        def forget():  # as after a restart under the same address
            for worker in cluster.workers.values():
                vars(worker).get("skdp_partitions", {}).clear()
                worker.handlers.pop(dask_tree.REQUEST, None)

        disturbances = {  # by the number of sums before
            3: lambda: stop_worker(cluster),
            6: add,
            9: forget,
            11: lambda: client.retire_workers([added[0].address]),
        }

        def disturbed(self, job, **options):
            disturbances.pop(len(homes), lambda: None)()
            total = real(self, job, **options)
            homes.append(set(self._homes.values()))
            return total

        monkeypatch.setattr(dask_client, "LOOK", 0.05)
        monkeypatch.setattr(Partitions, "add_up", disturbed)
        made = model(engine="dask").fit(folder)
        assert [len(some) for some in homes[2:9]] == [2, 1, 1, 1, 2, 2, 2]
        assert added[0].address not in homes[-1]
    assert not disturbances
    assert (made.weights_ == undisturbed).all()
    assert len(made.privacy_.transcript) == len(homes)
    assert [e.query for e in made.privacy_.events] == [
        e.query for e in model().fit(frame).privacy_.events
    ]


def test_a_cluster_that_cannot_finish_says_what_was_spent(
    folder, tmp_path, monkeypatch
):
    ledger = skdp.Ledger(tmp_path / "l.db", epsilon=5.0, delta=1e-6)
    monkeypatch.setattr(dask_client, "LOOK", 0.05)
    monkeypatch.setattr(dask_client, "PATIENCE", 0.1)
    with (
        start_cluster(1) as cluster,
        Client(cluster),
    ):
        real, sums = Partitions.add_up, []

        def disturbed(self, job, **options):
            sums.append(job)
            if len(sums) == 4:
                stop_worker(cluster)
            return real(self, job, **options)

        monkeypatch.setattr(Partitions, "add_up", disturbed)
        with pytest.raises(ClusterError, match="had no workers for") as caught:
            model(engine="dask", random_state=None, ledger=ledger).fit(folder)
    (note,) = caught.value.__notes__
    assert "number of rows" in note
    assert 0 < ledger.spent_epsilon < 3


def test_rows_that_are_lost_again_and_again(cluster, folder, monkeypatch):
    real = dask_rows.Partition.__init__

    def lose(self, records, error=None):
        real(self, None, error)

    monkeypatch.setattr(dask_rows.Partition, "__init__", lose)
    monkeypatch.setattr(dask_client, "ATTEMPTS", 2)
    with Client(cluster), pytest.raises(ClusterError, match="2 times in a row"):
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
    submit = dask_client.Cluster.submit

    def noted(self, task, *arguments, **options):
        future = submit(self, task, *arguments, **options)
        keys.add(future.key)
        return future

    with Client(cluster), pytest.MonkeyPatch.context() as patch:
        patch.setattr(dask_client.Cluster, "submit", noted)
        patch.setattr(dask_engine, "LOOK_FOR_MORE", 0.0)
        model().fit(good)
        with pytest.raises(ValueError, match=r"In partition 0: .* no column 'age'"):
            model().fit(bad)

        def fail(*arguments):
            raise KeyError(arguments)

        patch.setattr(dask_rows.HeldRows, "engine", fail)
        with pytest.raises(RuntimeError, match=r"A worker failed with KeyError\.$"):
            model().fit(good)
    assert SECRET not in caplog.text
    names = {"-".join(key.split("-")[:2]) for key in keys}
    assert names == {"skdp-hold", "skdp-stay"}
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
            if not any(key.startswith("skdp") for key in cluster.scheduler.tasks):
                break
            dask_client.time.sleep(0.02)
        assert not [key for key in cluster.scheduler.tasks if key.startswith("skdp")]


def test_rows_on_workers_cannot_be_read_here():
    with pytest.raises(ValueError, match="registered without reads_rows"):
        len(dask_engine.AwayChunks())


def test_rows_do_not_travel_in_a_pickle():
    kept = dask_rows.Partition(object(), ValueError("public"))
    arrived = pickle.loads(pickle.dumps(kept))
    assert arrived.records is None
    assert str(arrived.error) == "public"


def test_a_worker_keeps_the_rows_of_its_last_task_alone():
    """Or else engines of earlier groups of partitions would fill its memory."""
    records = [Records(SCHEMA.layout(), ()) for _ in range(3)]
    first, second, third = map(dask_rows.Partition, records)
    old = dask_rows.HeldRows.of([second, third])
    assert dask_rows.HeldRows.of([second, third]) is old
    new = dask_rows.HeldRows.of([first, second, third])
    assert (first.rows, second.rows, third.rows) == (new, None, None)
    third.records = records[0]  # read again
    assert dask_rows.HeldRows.of([first, second, third]) is not new


def test_a_client_that_is_closed_during_a_fit(cluster, folder, monkeypatch):
    real, sums = Partitions.add_up, []

    def close(self, job, **options):
        sums.append(job)
        if len(sums) == 4:
            self.cluster.client.close()
        return real(self, job, **options)

    monkeypatch.setattr(Partitions, "add_up", close)
    address = cluster.scheduler_address.replace("tcp://", "dask://")
    with pytest.raises(ClusterError, match="cannot be reached"):
        model(engine=address).fit(folder)


def test_a_worker_asks_few_others():
    """A thousand workers make a tree of three levels below the first."""
    addresses = [str(i) for i in range(1000)]
    found, level = [], [dask_tree.grow([Branch(a, [1], b"") for a in addresses])]
    for depth in range(4):
        found += [branch.worker for branch in level]
        assert len(level) == min(16**depth, 1000 - 1 - 16 - 256)
        assert all(len(branch.branches) <= 16 for branch in level)
        level = [other for branch in level for other in branch.branches]
    assert not level
    assert found == addresses


def test_workers_ask_each_other(folder, undisturbed, monkeypatch):
    """In a chain, and each gets the settings of a fit only once."""
    monkeypatch.setattr(dask_tree, "FAN_OUT", 1)
    pack, sent = dask_tree.pack, []

    def noted(table, job):
        sent.append(job.arguments[-1] if len(job.arguments) == 3 else None)
        return pack(table, job)

    monkeypatch.setattr(dask_tree, "pack", noted)
    with (
        start_cluster(3) as cluster,
        Client(cluster),
    ):
        proxied = []
        proxy = cluster.scheduler.handlers["proxy"]

        async def watched(worker, msg, **options):
            proxied.append(worker)
            return await proxy(worker=worker, msg=msg, **options)

        cluster.scheduler.handlers["proxy"] = watched
        made = model(engine="dask").fit(folder)
    assert (made.weights_ == undisturbed).all()
    assert len(proxied) == len(sent)
    assert len(set(proxied)) == 1  # the scheduler reaches the first worker alone
    whole = [one for one in sent if isinstance(one, dask_rows.Settings)]
    assert len({one.name for one in whole}) == len(whole)
    assert sent.count(whole[0].name) == 12 - 1


@pytest.mark.parametrize(
    ("long", "end"), [("fits", "told"), ("sums", "told"), ("fits", "gone")]
)
def test_workers_of_a_fit_are_not_idle(cluster, folder, monkeypatch, long, end):
    """A cluster that adapts to its load would close them.

    They are free as soon as the caller tells them, or soon after it is gone.
    """
    if long == "fits":
        monkeypatch.setattr(dask_engine, "LOOK_FOR_MORE", 0.0)
    else:
        monkeypatch.setattr(dask_client, "LOOK", 0.01)
    if end == "told":
        monkeypatch.setattr(dask_tasks, "LOOK", 60.0)
    else:
        monkeypatch.setattr(dask_tasks, "LOOK", 0.02)
        monkeypatch.setattr(dask_client.Cluster, "let_go", lambda *_: None)
    real, idle, threads = Partitions.add_up, [], []

    def noted(self, job, **options):
        total = real(self, job, **options)
        for _ in range(50):  # until Dask has started the task
            found = cluster.sync(list_idle)
            if not found:
                break
            dask_client.time.sleep(0.02)
        idle.append(found)
        threads.append(count_threads())
        return total

    async def list_idle():
        return cluster.scheduler.workers_to_close()

    def count_threads():
        stacks = [traceback.walk_stack(top) for top in sys._current_frames().values()]
        own = dask_tasks.stay.__code__
        return sum(any(frame.f_code is own for frame, _ in s) for s in stacks)

    monkeypatch.setattr(Partitions, "add_up", noted)
    with Client(cluster):
        model(engine="dask", n_steps=4).fit(folder)
        assert idle[-1] == []
        assert max(threads) == 2
        for _ in range(100):  # until Dask has let the workers go
            if count_threads() == 0 and len(cluster.sync(list_idle)) == 2:
                break
            dask_client.time.sleep(0.02)
        assert len(cluster.sync(list_idle)) == 2
        assert count_threads() == 0


def test_a_paused_worker_gets_no_rows(folder, undisturbed):
    """Dask pauses workers that are short of memory. They start no tasks then."""
    names = ("target", "spill", "pause", "terminate")
    never = {f"distributed.worker.memory.{name}": False for name in names}
    with (
        dask.config.set(never),  # so Dask itself neither pauses nor resumes them
        start_cluster(2) as cluster,
        Client(cluster),
    ):
        connected, (paused, other) = dask_client.Cluster(), cluster.workers.values()

        async def pause():
            paused.status = Status.paused

        cluster.sync(pause)
        for _ in range(100):
            if set(connected.find_workers()) == {other.address}:
                break
            dask_client.time.sleep(0.02)
        assert set(connected.find_workers()) == {other.address}
        assert set(connected.list_workers()) == {paused.address, other.address}
        made = model(engine="dask").fit(folder)
    assert (made.weights_ == undisturbed).all()


def test_rows_that_could_not_be_sent_are_sent_again(
    cluster, frame, undisturbed, monkeypatch
):
    real, failures = dask_engine._Scatter.__call__, [OSError(), TimeoutError()]

    def fail(self, client, worker):
        if failures:
            raise failures.pop()
        return real(self, client, worker)

    monkeypatch.setattr(dask_engine._Scatter, "__call__", fail)
    with Client(cluster):
        made = model(engine="dask").fit(frame)
    assert not failures
    assert (made.weights_ == undisturbed).all()


def test_a_scheduler_that_does_not_answer(cluster, monkeypatch):
    async def sleep(**_):
        await asyncio.sleep(0.5)

    monkeypatch.setitem(cluster.scheduler.handlers, "ncores", sleep)
    monkeypatch.setattr(dask_client, "PATIENCE", 0.05)
    with Client(cluster), pytest.raises(ClusterError, match="cannot be reached"):
        dask_client.Cluster().list_workers()


def test_a_fit_that_fails_leaves_nothing_on_the_workers(cluster, folder, monkeypatch):
    """Even before the garbage collector finds cycles."""

    def fail(*_):
        raise KeyError

    def list_tasks():
        return [key for key in cluster.scheduler.tasks if key.startswith("skdp")]

    monkeypatch.setattr(dask_rows.HeldRows, "engine", fail)
    with Client(cluster):
        gc.collect()
        gc.disable()
        try:
            with suppress(RuntimeError):
                model(engine="dask").fit(folder)
            for _ in range(100):
                if not list_tasks():
                    break
                dask_client.time.sleep(0.02)
            assert not list_tasks()
        finally:
            gc.enable()


def test_nothing_that_a_sum_raises_reaches_a_log():
    def stop(*_):
        raise SystemExit(SECRET)

    records, worker = Records(SCHEMA.layout(), ()), SimpleNamespace()
    kept = dask_rows.get_shelf(worker)["t", 0] = dask_rows.Partition(records)
    job = dask_rows.Job(stop, n_threads=1)
    answer = dask_rows.add_up_partitions(worker, "t", [0], job)
    assert str(answer.error) == "A worker failed with SystemExit."
    answer = dask_tasks.call(stop, None)
    assert str(answer.error) == "A worker failed with SystemExit."
    pool = ThreadPoolExecutor()
    pool.shutdown()  # as on a worker that is being closed
    worker.executors = {"default": pool}
    branch = Branch("a", [0], pickle.dumps(()))
    packed = asyncio.run(dask_tree._answer(worker, b"", branch))
    assert pickle.loads(packed).missing == (0,)
    assert kept.records is records


def test_rows_that_another_sum_deletes_at_the_same_time():
    class Deleted(dask_rows.Partition):
        rows = property(lambda self: None, lambda self, rows: None)

    kept = Deleted(Records(SCHEMA.layout(), ()))
    assert isinstance(dask_rows.HeldRows.of([kept]), dask_rows.HeldRows)


def test_sums_of_many_tasks_are_added_in_a_tree(cluster, monkeypatch):
    with Client(cluster):
        connected, used = dask_client.Cluster(), []
        submit = connected.submit

        def noted(task, *arguments, **options):
            used.append(task.__name__)
            return submit(task, *arguments, **options)

        monkeypatch.setattr(dask_client, "FAN_IN", 3)
        monkeypatch.setattr(connected, "submit", noted)
        answers = [submit(dask_tasks.call, _give, n, None) for n in range(11)]
        assert connected.total(answers).total == list(range(11))
        assert used == ["merge"] * (4 + 2)


def _give(table, target):
    return [table]


def test_a_sum_may_travel_for_longer_than_between_two_looks(cluster, monkeypatch):
    monkeypatch.setattr(dask_client, "LOOK", 0.001)
    with Client(cluster) as client:
        connected, gather = dask_client.Cluster(), client.gather

        async def be_slow(futures, **options):
            await asyncio.sleep(0.05)
            return await gather(futures, **options)

        monkeypatch.setattr(client, "gather", be_slow)
        task = connected.submit(dask_tasks.call, _give, 7, None)
        assert connected.total([task]).total == [7]


def test_tasks_that_are_cancelled_start_again(
    cluster, folder, undisturbed, monkeypatch
):
    real, cancelled = dask_client.Cluster.finish, []

    def cancel_once(self, futures, workers=()):
        if not cancelled:
            cancelled.extend(futures)
            self.client.cancel(futures)
        real(self, futures, workers)

    monkeypatch.setattr(dask_client.Cluster, "finish", cancel_once)
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
    ):
        answer = dask_tasks.call(partial(fail, error), path)
        assert str(answer.error) == said
        assert SECRET not in repr(vars(answer.error))
    away = dask_tasks.call(partial(fail, quoting), tmp_path / "b.csv")
    assert "worker of the cluster does not find the file" in str(away.error)


def test_messages_of_other_libraries_stay_on_the_worker():
    """They may quote a cell, as numpy does if it cannot convert a string."""
    with pytest.raises(ValueError, match="Ann") as raised:
        np.array(["Ann"]).astype(float)
    for error in (raised.value, UnicodeDecodeError("utf-8", b"Ann", 0, 1, "bad")):
        told = dask_rows.make_public(error)
        assert str(told) == f"A worker failed with {type(error).__name__}."
    own = InputError("A table needs columns.")
    assert dask_rows.make_public(own) is own
