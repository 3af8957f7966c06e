"""Whatever exports rows gives the fit of a data frame with the same rows."""

import bz2
import gzip
import os
import pickle
import shutil
import subprocess
from functools import cache
from pathlib import Path
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import skdp
from skdp.tables import CSV, locations, readers, streams
from skdp.tables.files import PartitionFile

N = 700
_rng = np.random.default_rng(3)
FRAME = pd.DataFrame(
    {
        "income": _rng.gamma(3, 1e4, N).round(2),
        "Größe": _rng.integers(150, 200, N),
        "town": _rng.choice(["Zürich", "Genève", 'Biel, "Bienne"'], N),
        "year": _rng.choice([2023, 2024], N),
        "who": _rng.integers(0, 300, N),
        "left": _rng.choice(["no", "yes"], N),
    }
)
ARROW = pa.Table.from_pandas(FRAME, preserve_index=False)
COLUMNS = {
    "income": skdp.Numeric(0, 100_000),
    "Größe": skdp.Numeric(140, 210),
    "town": skdp.Categorical(["Zürich", "Genève", 'Biel, "Bienne"']),
    "year": skdp.Categorical([2023, 2024]),
}
SCHEMA = skdp.Schema(COLUMNS, target=("left", skdp.Categorical(["no", "yes"])))
PERSONS = skdp.Schema(COLUMNS, target=SCHEMA.target, unit="who")
QUERY = 'select "income", "Größe", "town", "year", "who", "left" from stays'
FIXED = {"n_steps": 5, "random_state": 1, "engine": "reference"}


def fit(table, schema=SCHEMA, **options):
    return skdp.LogisticRegression(schema=schema, **FIXED | options).fit(table)


def weights(*given, **options):
    return fit(*given, **options).weights_.tobytes()


@cache
def expect(unit, look):
    return weights(FRAME, SCHEMA if unit is None else PERSONS, look=look)


def is_the_fit_of_the_frame(table, *schemas, look=True):
    return all(
        weights(table, one, look=look) == expect(one.unit, look) for one in schemas
    )


#: For tables that can be read only once.
ONCE = {"look": False}


# ---- Streams and data sets


class Exporter:
    """Exports a stream as often as it is asked to."""

    def __init__(self, times=10**9):
        self.times = times

    def __arrow_c_stream__(self, requested_schema=None):
        self.times -= 1
        if self.times < 0:
            raise RuntimeError(f"{FRAME.income[0]} was read before")
        return ARROW.to_reader(max_chunksize=90).__arrow_c_stream__()


def _partition(folder):
    ds.write_dataset(
        ARROW, folder, format="parquet", partitioning=["year"],
        partitioning_flavor="hive",
    )  # fmt: skip
    (folder / "_SUCCESS").touch()
    return folder


def _feather(path, **options):
    feather.write_feather(ARROW, path, **options)
    return path


def _csv(path, opened=open, encoding="utf-8"):
    with opened(path, "wb") as file:
        file.write(FRAME.to_csv(index=False).encode(encoding))
    return path


def _open_zstd(path, mode):
    return pa.CompressedOutputStream(os.fspath(path), "zstd")


def _with_uuids():
    """The frame, with a UUID for each person."""
    made = [UUID(int=who).bytes for who in FRAME["who"]]
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array(made, pa.binary(16)))
    return ARROW.set_column(ARROW.schema.get_field_index("who"), "who", ids)


SOURCES = {
    "uuids": lambda path: _with_uuids(),
    "exporter": lambda path: Exporter(),
    "data set": lambda path: ds.dataset(ARROW),
    "data set of files": lambda path: ds.dataset(
        _partition(path / "stays"), partitioning="hive"
    ),
    "hive": lambda path: _partition(path / "stays"),
    "pattern": lambda path: f"{_partition(path / 'stays')}//y*/*.parquet",
    "feather": lambda path: _feather(path / "t.feather", chunksize=33),
    "feather, zstd": lambda path: _feather(path / "t.arrow", compression="zstd"),
    "gzip": lambda path: _csv(path / "t.csv.gz", gzip.open),
    "bz2": lambda path: _csv(path / "T.CSV.BZ2", bz2.open),
    "zstd": lambda path: _csv(path / "t.csv.zst", _open_zstd),
    "latin-1": lambda path: CSV(
        _csv(path / "t.csv", encoding="latin-1"), encoding="latin-1"
    ),
    "utf-16": lambda path: CSV(
        _csv(path / "t.csv.gz", gzip.open, "utf-16"), encoding="UTF_16"
    ),
    "file address": lambda path: f"file://{_csv(path / 't.csv')}",
    "address of a directory": lambda path: f"file://{_partition(path / 'stays')}",
}


@pytest.mark.parametrize("kind", SOURCES)
def test_a_source_gives_the_fit_of_the_frame(kind, tmp_path):
    table = SOURCES[kind](tmp_path)
    assert is_the_fit_of_the_frame(table, SCHEMA, PERSONS)
    assert len(fit(FRAME).predict(table)) == N


def test_duckdb():
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("stays", FRAME)
    query = connection.sql(QUERY)
    assert is_the_fit_of_the_frame(query, SCHEMA, PERSONS)
    assert len(connection.sql("select 1").fetchall()) == 1  # no stream is left open
    found = skdp.discover(query, epsilon=9.0, random_state=0)
    same = skdp.discover(FRAME, epsilon=9.0, random_state=0)
    assert str(found.schema) == str(same.schema)
    with pytest.raises(ValueError, match="y must name a column of the table"):
        skdp.LogisticRegression(schema=SCHEMA).fit(query, FRAME["left"])


@pytest.mark.filterwarnings("ignore:Arrow output on a DB-API result")
@pytest.mark.parametrize("library", ["duckdb", "sqlite"])
def test_results_of_cursors(library):
    """Each can be read once, which is enough for a fit without a look."""
    with connect(library) as connection:
        assert is_the_fit_of_the_frame(connection.execute(QUERY), SCHEMA, **ONCE)
        with pytest.raises(ValueError, match=r"for a look \(which look=False leaves"):
            fit(connection.execute(QUERY))
        with pytest.raises(ValueError, match="for the rows of each person and for the"):
            fit(connection.execute(QUERY), PERSONS, **ONCE)


class connect:
    """A cursor with the table "stays" in a database of its own."""

    def __init__(self, library):
        if library == "duckdb":
            self.opened = [pytest.importorskip("duckdb").connect()]
            self.opened[0].register("stays", FRAME)
            return
        dbapi = pytest.importorskip(f"adbc_driver_{library}.dbapi")
        connection = dbapi.connect()
        self.opened = [connection.cursor(), connection]
        self.opened[0].adbc_ingest("stays", ARROW)

    def __enter__(self):
        return self

    def execute(self, query):
        self.opened[0].execute(query)
        return self.opened[0]

    def __exit__(self, *_):
        for one in self.opened:
            one.close()


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    """The address of a server of PostgreSQL with an empty database."""
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    found = shutil.which("initdb") or next(
        map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), None
    )
    if found is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path("/tmp", f"skdp-postgres-{os.getpid()}")  # sockets need short paths
    folder.mkdir(mode=0o777)
    user = {}
    if os.geteuid() == 0:  # the server refuses root
        user = {"user": "postgres", "cwd": folder}
        shutil.chown(folder, "postgres")

    def run(*command):
        command = [Path(found).with_name(command[0]), *command[1:]]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **user)

    data = folder / "data"
    try:
        run("initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync")
        only = f"-k {folder} -c listen_addresses='' -c fsync=off"
        run("pg_ctl", "-D", data, "-o", only, "-l", folder / "log", "-w", "start")
        try:
            yield dbapi, f"postgresql:///postgres?host={folder}&user=postgres"
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def test_postgresql(postgres):
    dbapi, address = postgres
    with dbapi.connect(address) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("stays", ARROW)
        cursor.execute(QUERY)
        assert is_the_fit_of_the_frame(cursor, SCHEMA, **ONCE)
        cursor.execute(QUERY)
        assert is_the_fit_of_the_frame(cursor.fetch_arrow(), SCHEMA, **ONCE)
        # A table of numbers of any length, which Arrow gets as text.
        texts = 'select income::numeric as "income", "Größe", town, year, who, "left"'
        cursor.execute(f"{texts} from stays")
        assert is_the_fit_of_the_frame(cursor, SCHEMA, **ONCE)


def test_a_stream_is_read_once():
    reader = ARROW.to_reader()
    assert is_the_fit_of_the_frame(reader, SCHEMA, **ONCE)
    with pytest.raises(ValueError, match="has been read already"):
        fit(reader, **ONCE)
    for reads, options in (
        ("the classes and for the records", {"class_weight": "balanced"}),
        ("the number of rows and for the places", {"neighbours": "zero-out"}),
    ):
        with pytest.raises(ValueError, match=f"only once, but is needed for {reads}"):
            fit_twice(options)
    with pytest.raises(ValueError, match=r"for the schema\. Pass a query"):
        skdp.discover(ARROW.to_reader(), epsilon=1.0)
    with pytest.raises(ValueError, match="the fits and for the scores"):
        skdp.PrivateSearchCV(
            skdp.LogisticRegression(schema=PERSONS), {"alpha": [1, 2]}
        ).fit(ARROW.to_reader())


def fit_twice(options):
    """A fit that reads its table twice."""
    model = skdp.LogisticRegression
    if "neighbours" in options:
        model, options = skdp.AdditiveClassifier, options | {"delta": 1e-6}
    model(schema=SCHEMA, **ONCE, **options).fit(ARROW.to_reader())


def test_a_stream_that_cannot_be_started_again_costs_nothing():
    for times in (0, 1):
        with pytest.raises(ValueError, match="did not export its Arrow") as refusal:
            fit(Exporter(times))
        assert not getattr(refusal.value, "__notes__", [])
        assert str(FRAME.income[0]) not in str(refusal.value)
        assert refusal.value.__context__ is None


def test_a_data_set_that_fails_at_a_cell_does_not_quote_it(tmp_path):
    cells = ["1"] * 700_000 + ["secret"]
    (tmp_path / "t.csv").write_text("income\n" + "\n".join(cells))
    data = ds.dataset(tmp_path / "t.csv", format="csv")
    source = readers.open_source(data)
    with pytest.raises(ValueError, match=r"^The stream could not be read\.$"):
        list(source.read([0], 1000))


def test_only_the_columns_of_a_query_that_are_needed_are_computed():
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    columns = ('5 as "a ""b"""', "error('computed') as broken", '7 as "Select"')
    query = connection.sql(f"select {', '.join(columns)}")
    source = readers.open_source(query)
    (cells,) = source.read([2, 0], 10)
    assert [one.to_pylist() for one in cells] == [[7], [5]]


# ---- Files


def test_a_partition_is_a_column(tmp_path):
    folder = _partition(tmp_path / "stays")
    missing = folder / f"year={locations.MISSING_CELL}"
    (folder / "year=2024").rename(missing)
    source = readers.open_source(folder)
    at = list(source.names).index("year")
    found = [cells for (cells,) in source.read([at], 100)]
    texts = [[c.values[i] if i >= 0 else None for i in c.codes] for c in found]
    listed = [text for part in texts for text in part]
    assert sum(text is None for text in listed) == (FRAME["year"] == 2024).sum()
    assert set(listed) == {"2023", None}
    pattern = readers.open_source(folder / "year=2023" / "*.parquet")
    assert "year" not in pattern.names  # it is written out, so it tells nothing
    pq.write_table(ARROW, folder / "year=2023" / "part-0.parquet")
    assert readers.open_source(folder).names.count("year") == 1
    (folder / "month=1").mkdir()
    (folder / "month=1" / "t.parquet").touch()
    with pytest.raises(ValueError, match="directories of the same columns"):
        readers.open_source(folder)


def test_a_partition_can_be_sent_to_a_worker_in_sections(tmp_path):
    folder = _partition(tmp_path / "stays")
    files = readers.check_path(folder)
    assert all(isinstance(file, PartitionFile) for file in files)
    parts = [
        part
        for file in files
        for part in readers.split_file(pickle.loads(pickle.dumps(file)), 1)
    ]
    assert sum(readers.open_source(part).n_rows for part in parts) == N
    assert readers.open_source(parts[0]).names[-1] == "year"


@pytest.mark.parametrize("ending", ["csv.gz", "csv", "feather", "parquet"])
def test_damaged_files(ending, tmp_path):
    path = tmp_path / f"t.{ending}"
    if ending == "csv":
        path.write_bytes("income,Größe\n1,2\n".encode("latin-1"))
    else:
        whole = gzip.compress(FRAME.to_csv().encode()) if "gz" in ending else b"ARROW1"
        path.write_bytes(whole[: len(whole) // 2])
    reason = "is not UTF-8" if ending == "csv" else "could not be read"
    with pytest.raises(ValueError, match=rf"'t\.{ending}' {reason}"):
        fit(path)


def test_encodings():
    for name in ("latin-1", "cp1252", "UTF-8", "utf-8-sig", "utf-16", "utf-32-be"):
        CSV("t.csv", encoding=name)
    # In these, one record can change how the next is read.
    for name in ("utf-7", "shift_jis", "gb18030", "hz", "charmap", "rot13", "no", 3):
        with pytest.raises(ValueError, match="encoding must be"):
            CSV("t.csv", encoding=name)


def test_bytes_that_are_not_text_change_no_other_row(tmp_path):
    path = tmp_path / "t.csv"
    good = "income,town\n1,a\n2,b\n3,c\n".encode("utf-16-le")
    at = good.index("b".encode("utf-16-le"))
    path.write_bytes(good[:at] + b"\x00\xd8" + good[at + 2 :])
    source = readers.open_source(CSV(path, encoding="utf-16-le"))
    (cells,) = source.read([1], 10)
    assert cells[0].to_pylist() == [b"a", "�".encode(), b"c"]
    assert source.count() == 3


# ---- Object stores


@pytest.fixture(scope="module")
def bucket():
    """The address of an empty bucket, and the options that follow a file's name."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0)
    server.start()
    port = server.get_host_and_port()[1]
    options = f"scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"
    options += "&allow_bucket_creation=true"
    start = "s3://user:password@stays"
    system, path = pa.fs.FileSystem.from_uri(f"{start}?{options}")
    system.create_dir(path)
    yield start, f"?{options}", system
    server.stop()


def test_an_object_store(bucket, tmp_path):
    start, options, system = bucket
    for made in (
        _csv(tmp_path / "t.csv.gz", gzip.open),
        _feather(tmp_path / "t.feather"),
        _partition(tmp_path / "parts"),
    ):
        pa.fs.copy_files(str(made), f"stays/{made.name}", destination_filesystem=system)
        address = f"{start}/{made.name}{options}"
        assert is_the_fit_of_the_frame(address, SCHEMA)
    assert is_the_fit_of_the_frame(locations.Address(address), PERSONS)


def test_messages_hide_what_an_address_holds(bucket, monkeypatch):
    start, options, _ = bucket

    def refuse(address, message):
        with pytest.raises(ValueError, match=message) as refusal:
            fit(address)
        assert "password" not in str(refusal.value)
        assert refusal.value.__context__ is None

    refuse(f"{start}/no.csv{options}", r"There is no file 's3://…/no\.csv'")
    refuse(f"{start}/*.csv{options}", "Patterns are for files of this machine")
    refuse(f"{start}/t.csv?no=1", "could not be opened")
    refuse("none://u:password@x/t.csv", r"'none://…/t\.csv' could not be opened")
    monkeypatch.setattr(locations, "_open_system", lambda address: (None, address))
    refuse(f"{start}/t.csv{options}", r"'s3://…/t\.csv' could not be reached")


def test_addresses_are_split_as_paths_are():
    assert locations.split_name("S3://b/T.CSV.GZ?x=1.parquet") == (".csv", "gzip")
    assert locations.get_name("s3://b/stays/?x=/1") == "stays"
    assert locations.get_name(Path("a/b.csv")) == "b.csv"
    assert not readers.is_text_file("s3://b/t.parquet")
    assert readers.is_text_file(CSV("t.tsv.zst"))
    assert str(locations.Address("s3://a:b@c/d.csv")) == "s3://…/d.csv"


def test_a_stream_is_not_copied_whole():
    """At most a few of its batches are alive at the same time."""
    alive, most = set(), 0

    def batches():
        nonlocal most
        for number in range(60):
            batch = pa.record_batch({"income": np.full(50_000, float(number))})
            buffer = batch.column(0).buffers()[1]
            alive.add(number)
            most = max(most, pa.total_allocated_bytes())
            del buffer
            yield batch

    before = pa.total_allocated_bytes()
    reader = pa.RecordBatchReader.from_batches(
        pa.schema([("income", pa.float64())]), batches()
    )
    source = streams.open_stream(reader, None)
    total = sum(pc.sum(cells[0]).as_py() for cells in source.read([0], 65_536))
    assert total == 50_000 * sum(range(60))
    assert len(alive) == 60
    assert most - before < 10 * 50_000 * 8
