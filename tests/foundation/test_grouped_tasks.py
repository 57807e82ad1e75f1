import pytest

from foundation.grouped_tasks import grouped_map


@pytest.mark.parametrize("number", [0, 1, 3, 64, 1000])
def test_each_item_is_asked_once_in_order_and_a_failure_is_raised(number: int) -> None:
    asked: list[int] = []

    def square(item: int) -> int:
        asked.append(item)
        return item * item

    assert list(grouped_map(square, iter(range(number)), 4)) == [item * item for item in range(number)]
    assert sorted(asked) == list(range(number))
    with pytest.raises(ZeroDivisionError):
        list(grouped_map(lambda item: 1 // (number - item), range(number + 1), 4))
