"""The words that SQL over one row may have: operators, types, units, and those functions of Spark that look at one row.

A function is listed if it gives the same result for the same row at any time, on any server, makes one value of one
row, and reaches nothing outside. Names are in small letters. Pure.
"""

from collections.abc import Mapping


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


OPERATORS = _words("""
    and as between both case cast div else end escape false for ilike in interval is leading like not null or regexp
    rlike then to trailing true try_cast when
""")
"""Words of expressions. A bracket behind one of them is no call of a function."""

TYPES_AND_UNITS = _words("""
    array bigint binary boolean byte char date dec decimal double float int integer long map numeric real short
    smallint string timestamp timestamp_ltz timestamp_ntz tinyint varchar
    year years yearofweek quarter month months week weeks day days dayofweek dow doy hour hours minute minutes second
    seconds millisecond milliseconds microsecond microseconds
""")

CALLS_WITH_FROM = _words("extract substr substring trim")

_OTHER_ROWS = "a row may not depend on other rows"
CLAUSES: Mapping[str, str] = {
    "select": "a second SELECT is not allowed: no subquery",
    "where": "only one WHERE is allowed",
    **dict.fromkeys(_words("from table values with"), "only one FROM is allowed, of rows: no subquery"),
    **dict.fromkeys(
        _words("anti cross full inner join natural on semi using"), "no join is allowed: rows is the only table"
    ),
    **dict.fromkeys(_words("over partition qualify window"), f"no window is allowed: {_OTHER_ROWS}"),
    **dict.fromkeys(_words("group grouping having"), f"no GROUP BY or HAVING is allowed: {_OTHER_ROWS}"),
    **dict.fromkeys(_words("all distinct"), f"no DISTINCT or ALL is allowed: {_OTHER_ROWS}"),
    **dict.fromkeys(_words("cluster distribute order sort"), "no ORDER BY is allowed: rows have no order here"),
    **dict.fromkeys(_words("limit offset tablesample"), "no LIMIT is allowed: every record has to be looked at"),
    **dict.fromkeys(_words("except intersect minus union"), f"no UNION is allowed, or the like: {_OTHER_ROWS}"),
    **dict.fromkeys(_words("lateral pivot unpivot"), "one row may not become several"),
}
"""Why the word is refused. A text with it could be more than an expression over one row."""

NAMES_OF_FUNCTIONS = _words("""
    current_catalog current_database current_date current_schema current_time current_timestamp current_user
    grouping__id localtime localtimestamp session_user user
""")
"""Spark calls a function by these names, without brackets, if no column has them."""

REASON_BY_FUNCTION: Mapping[str, str] = {
    **dict.fromkeys(
        _words("""
            any any_value approx_count_distinct array_agg avg bool_and bool_or collect_list collect_set count count_if
            every first first_value last last_value listagg max max_by mean median min min_by mode percentile some std
            stddev string_agg sum variance
        """),
        "it is an aggregate, which looks at several rows",
    ),
    **dict.fromkeys(
        _words("cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number"),
        "it looks at several rows",
    ),
    **dict.fromkeys(
        _words("explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack"),
        "it makes several rows, or several columns, of one",
    ),
    **dict.fromkeys(
        _words("""
            aes_encrypt curdate current_date current_time current_timestamp localtimestamp monotonically_increasing_id
            now rand randn random randstr shuffle spark_partition_id uniform unix_timestamp uuid
        """),
        "it may give another value for the same row, so a replay would differ",
    ),
    **dict.fromkeys(
        _words("""
            current_catalog current_database current_schema current_timezone current_user input_file_block_length
            input_file_block_start input_file_name java_method reflect session_user try_reflect user version
        """),
        "it reaches outside of the row",
    ),
}
"""Why the best known of the functions that are not listed are refused."""

FUNCTIONS_BY_KIND: Mapping[str, frozenset[str]] = {
    "arrays, maps and structs": _words("""
        aggregate array array_append array_compact array_contains array_distinct array_except array_insert
        array_intersect array_join array_max array_min array_position array_prepend array_remove array_repeat
        array_size array_sort array_union arrays_overlap arrays_zip cardinality concat element_at exists filter
        flatten forall get map map_concat map_contains_key map_entries map_filter map_from_arrays map_from_entries
        map_keys map_values map_zip_with named_struct reduce reverse sequence size slice sort_array str_to_map struct
        transform transform_keys transform_values try_element_at zip_with
    """),
    "conditions and types": _words("""
        bigint binary boolean cast char coalesce date decimal double equal_null float if ifnull int isnan isnotnull
        isnull nanvl nullif nullifzero nvl nvl2 smallint string timestamp tinyint try_cast zeroifnull
    """),
    "moments": _words("""
        add_months convert_timezone date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc
        dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear extract from_unixtime from_utc_timestamp
        hour last_day make_date make_dt_interval make_interval make_timestamp make_timestamp_ltz make_timestamp_ntz
        make_ym_interval minute month monthname months_between next_day quarter second timestamp_micros
        timestamp_millis timestamp_seconds timestampadd timestampdiff to_date to_timestamp to_timestamp_ltz
        to_timestamp_ntz to_unix_timestamp to_utc_timestamp trunc try_make_interval try_make_timestamp
        try_make_timestamp_ltz try_make_timestamp_ntz try_to_date try_to_timestamp unix_date unix_micros unix_millis
        unix_seconds weekday weekofyear year
    """),
    "numbers, bits and hashes": _words("""
        abs acos acosh asin asinh atan atan2 atanh bin bit_count bit_get bround cbrt ceil ceiling conv cos cosh cot
        crc32 csc degrees e exp expm1 factorial floor getbit greatest hash hex hypot least ln log log10 log1p log2 md5
        mod negative pi pmod positive pow power radians rint round sec sha sha1 sha2 shiftleft shiftright
        shiftrightunsigned sign signum sin sinh sqrt tan tanh try_add try_divide try_mod try_multiply try_subtract
        unhex width_bucket xxhash64
    """),
    "texts": _words("""
        ascii base64 bit_length btrim char_length character_length chr concat_ws contains decode elt encode endswith
        find_in_set format_number format_string initcap instr is_valid_utf8 lcase left len length levenshtein locate
        lower lpad ltrim luhn_check make_valid_utf8 mask octet_length overlay position printf quote regexp_count
        regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr repeat replace right
        rpad rtrim sentences soundex space split split_part startswith substr substring substring_index to_binary
        to_char to_number to_varchar translate trim try_to_binary try_to_number try_validate_utf8 ucase unbase64 upper
        validate_utf8
    """),
    "JSON, CSV and addresses": _words("""
        from_csv from_json get_json_object json_array_length json_object_keys parse_url to_csv to_json try_parse_url
        try_url_decode url_decode url_encode
    """),
}

FUNCTIONS = frozenset[str]().union(*FUNCTIONS_BY_KIND.values())
"""A test asks Spark for each of them."""
