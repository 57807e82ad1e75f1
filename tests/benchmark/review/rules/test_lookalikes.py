"""Letters that are not what they seem."""

from tests.benchmark.review.trials.told import rule_tests

FOUND = (
    ("named.letters", "submitter with a zero-width blank in the logs", "U+200B"),
    ("named.letters", "submitter with a Cyrillic letter in the logs", "Latin and Cyrillic, as U+0410"),
    ("named.letters", "platform written from right to left", "U+202E"),
    ("named.letters", "submitter with blanks around it", "a blank at its beginning or end"),
    ("key.lookalike", "a failed evaluation hidden under a name with a Cyrillic letter", "two alphabets"),
    (
        "key.lookalike",
        "run_stop with a blank behind its name, and another one later",
        "key 'run_stop ' with a blank at its beginning or end",
    ),
    ("key.lookalike", "RUN_START in capitals before the clock starts", "key 'RUN_START', beside 'run_start'"),
    (
        "system.letters",
        "submitter with a Cyrillic letter in the description",
        "submitter with letters of two alphabets",
    ),
    ("system.letters", "nodes in full-width digits", "number_of_nodes with a digit of another writing, U+FF16"),
    ("system.lookalike", "a field twice, once with a blank behind its name", "field 'number_of_nodes '"),
    ("system.lookalike", "a field twice, once in capitals", "field 'Accelerator_Model_Name'"),
    ("package.letters", "a name that looks like another: Cyrillic letters in the system's folder", "two alphabets"),
    ("package.same_but_case", "two systems whose names differ in case only", "beside"),
    ("package.same_but_case", "file names that differ in case only", "beside 'README.md'"),
)
test_cheat_is_told, test_nothing_is_told_of_an_honest_submission = rule_tests(FOUND)
