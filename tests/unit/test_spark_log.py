"""What Spark's log keeps of an error: the table of classes and lines.

Log4j's pattern is read from its file and runs as a pattern of Python, which means the same but for two signs. That
Log4j itself runs it so is in ``tests/integration/test_quoted_values.py``.
"""

import re

import pytest

from batchledger.source.spark import LOG_SETTINGS

VALUE = "canary-4111-1111"
FRAME = "\tat java.base/java.net.URI$Parser.fail(URI.java:2976)\n"
FOLDER = f"/lake/customer={VALUE}/1.parquet"


def log(text: str) -> str:
    """Return what the file's pattern makes of message and error."""
    pattern = LOG_SETTINGS.read_text().split("layout.pattern = ")[1].strip().replace(r"\\", "\\")
    found = re.fullmatch(r"%d\{ISO8601\} %p %c\{1\}: %replace\{%m%n%ex\}\{(.*)\}\{(.*)\}", pattern)
    assert found is not None
    return re.sub(found[1].replace(r"\z", r"\Z"), re.sub(r"\$(\d)", r"\\\1", found[2]), text, flags=re.ASCII)


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        (
            f"org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] '{VALUE}'\n== SQL ==\nx",
            "CAST_INVALID_INPUT",
        ),
        (f"org.apache.spark.SparkException: Job aborted: [CAST_INVALID_INPUT] '{VALUE}'", ""),
        (f"java.net.URISyntaxException: Illegal character in authority at index 7: http://a b/{VALUE}", ""),
        (f"java.net.MalformedURLException: no protocol: {VALUE}", ""),
        (f"java.net.UnknownHostException: {VALUE}: Name or service not known", "Name or service not known"),
        (f"java.nio.charset.UnsupportedCharsetException: {VALUE}", ""),
        (f"java.nio.charset.IllegalCharsetNameException: a {VALUE}", ""),
        ("java.nio.charset.MalformedInputException: Input length = 1", ""),
        (f"java.io.UnsupportedEncodingException: {VALUE}", ""),
        (f"java.io.IOException: cannot read {VALUE}", ""),
        (f"java.io.FileNotFoundException: {FOLDER} (No such file or directory)", "No such file or directory"),
        (f"java.nio.file.NoSuchFileException: {FOLDER}", ""),
        (f"java.nio.file.FileSystemException: {FOLDER}: No space left on device", "No space left on device"),
        (f"scala.MatchError: {VALUE} (of class java.lang.String)", ""),
        ("scala.MatchError: [4111] (of class org.apache.spark.sql.Row, not canary)", ""),
        (f"scala.NotImplementedError: {VALUE}", ""),
        (f"java.lang.AssertionError: assertion failed: {VALUE}", ""),
        (f"java.lang.Error: {VALUE}", ""),
        (f"java.lang.ArithmeticException: {VALUE} is too large", ""),
        (f'java.lang.NumberFormatException: For input string: "{VALUE}"', ""),
        (f"java.time.format.DateTimeParseException: Text '{VALUE}' could not be parsed at index 0", ""),
        (f"java.time.DateTimeException: Invalid date '{VALUE}'", ""),
        (f"java.util.regex.PatternSyntaxException: Unclosed group near index 9\n({VALUE}\n         ^", ""),
        (f'com.fasterxml.jackson.core.JsonParseException: Unrecognized token\n at [Source: (String)"{VALUE}"]', ""),
        (f'org.xml.sax.SAXParseException; lineNumber: 1; columnNumber: 3; The element type "{VALUE}" must', ""),
        (f"org.postgresql.util.PSQLException: ERROR: duplicate key\n  Detail: Key (id)=({VALUE})", ""),
        (f"com.example.Refused: {VALUE}", ""),
        (f"ValueError: {VALUE}", ""),
        (f"java.lang.RuntimeException: one\n\n{VALUE}\nCaused by: nothing of {VALUE}\n\n\n", ""),
        ("java.io.IOException: No space left on device", "No space left on device"),
        ("java.io.IOException: Connection reset by peer", "Connection reset"),
        ("java.io.IOException: Failed to connect to host/10.0.0.1:7077", "Failed to connect"),
        (
            "java.net.BindException: Address already in use: Service 'sparkDriver' failed",
            "Service 'sparkDriver' failed",
        ),
        ("java.net.ConnectException: Connection refused", ": Connection refused"),
        ("java.net.NoRouteToHostException: No route to host", ": No route to host"),
        ("java.net.SocketException: Socket closed", ": Socket closed"),
        ("java.net.SocketTimeoutException: Read timed out", ": Read timed out"),
        ("java.lang.OutOfMemoryError: Java heap space", ": Java heap space"),
        ("java.lang.NoClassDefFoundError: org/apache/iceberg/Table", ": org/apache/iceberg/Table"),
        ("java.lang.NoSuchMethodError: 'void a.B.c()'", ": 'void a.B.c()'"),
    ],
)
def test_error_in_sparks_log_keeps_class_and_trace_and_no_words_that_can_quote_a_value(told: str, kept: str) -> None:
    name = re.split("[:;]", told)[0]
    for text in (
        f"Exception in task 0.0\n{told}\n{FRAME}",
        f"Lost task 0.0 in stage 1.0 (TID 1) (10.0.0.1 executor 1): {told}\n{FRAME}\n",
        f"Job aborted\norg.apache.spark.SparkException: {VALUE}\n{FRAME}Caused by: {told}\n{FRAME}\t... 4 more\n",
        f"Job aborted\na.FirstException: {VALUE}\n{FRAME}\tSuppressed: {told}\n\t{FRAME}",
        f"Lost task 0.1 in stage 1.0 (TID 2) on h, executor 1: {name} ({told.partition(': ')[2]}) [duplicate 1]\n",
    ):
        logged = log(text)
        assert "canary" not in logged
        assert "4111" not in logged
        assert name in logged
        assert logged.count(FRAME) == text.count(FRAME)
        assert kept.removeprefix(": ") in logged


@pytest.mark.parametrize(
    "message",
    [
        "Your hostname, x, resolves to a loopback address: 127.0.0.1; using 10.0.0.2 instead (on interface eth0)\n",
        "Task 0 in stage 1.0 failed 4 times; aborting job\n",
        f"Uncaught\njava.lang.NullPointerException\n{FRAME}",
    ],
)
def test_message_without_words_of_an_error_is_logged_as_it_is(message: str) -> None:
    assert log(message) == message


@pytest.mark.parametrize("part", ["\n", "\n ", "a.", "a.B: \n", "Exception", "\n at a", "\nCaused by: a", "x: "])
def test_value_of_any_length_and_shape_does_not_hold_the_log_up(part: str) -> None:
    """A pattern that looks at each rest of the text again would take minutes, and the test's own limit ends it."""
    text = f"java.lang.RuntimeException: {part * 100_000}{VALUE}"
    assert log(f"Failed\n{text}\n{FRAME}").split() == ["Failed", "java.lang.RuntimeException", *FRAME.split()]
    assert log(f"{part * 100_000}end\n").rstrip().endswith(("end", "a.B"))
