"""ULIDs: made one at a time or many at once, they sort as they were made and never repeat."""

from omnigraph.model.ports import ULID_LENGTH, UlidFactory, ulid_us, ulids


def test_ids_made_one_by_one_grow_also_within_a_millisecond_and_when_the_clock_goes_back():
    times = iter([5_000_000, 5_000_000, 5_000_900, 4_000_000, 6_000_000])
    factory = UlidFactory(lambda: next(times))
    made = [factory.ulid() for _ in range(5)]
    assert made == sorted(set(made))
    assert {len(one) for one in made} == {ULID_LENGTH}


def test_ids_made_at_once_are_as_many_as_asked_for_and_sorted():
    for count in (0, 1, 1023, 1024, 1025, 3000):
        letters = ulids(count).decode()
        made = [letters[at : at + ULID_LENGTH] for at in range(0, len(letters), ULID_LENGTH)]
        assert len(made) == count
        assert made == sorted(set(made))


def test_two_calls_share_no_id():
    assert not {ulids(1)} & {ulids(1)}
    assert ulids(2)[: ULID_LENGTH - 7] != ulids(2)[: ULID_LENGTH - 7]


def test_a_ulid_holds_its_moment():
    for moment_us in (0, 1_700_000_000_123_000, (2**48 - 1) * 1000):
        assert ulid_us(UlidFactory(lambda now=moment_us: now).ulid()) == moment_us
    assert [ulid_us(text) for text in ("", "main", "u" * 26, "I" * 26)] == [None] * 4
