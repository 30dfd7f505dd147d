"""Every procedure is wrong as seldom, and right as often, as it says."""

from dataclasses import replace

import pytest

from ..support.error_rates import BEGIN, DRAWS, PAGE, Rate, rates

RATES = {rate.name: rate for rate in rates()}
# A few standard errors wide, within half a minute for all of them.
FEW = 800
PROMISED = [name for name, rate in RATES.items() if rate.kind != "shown"]


def _check(rate: Rate, draws: int) -> None:
    share, error = rate.simulated(draws)
    assert rate.holds(share, draws), f"{share:.4f} ± {error:.4f}, promised {rate.nominal}"


@pytest.mark.parametrize("name", PROMISED)
def test_a_rate_is_kept_in_few_draws(name: str) -> None:
    _check(RATES[name], FEW)


@pytest.mark.long
@pytest.mark.parametrize("name", PROMISED)
def test_a_rate_is_kept_in_many_draws(name: str) -> None:
    _check(RATES[name], DRAWS)


def test_every_rate_is_a_row_of_the_page() -> None:
    shown = PAGE.read_text().partition(BEGIN)[2]
    assert [f"`{name}` |" in shown for name in RATES] == [True] * len(RATES)


@pytest.mark.parametrize("name", [name for name in RATES if name not in PROMISED])
def test_what_is_called_exploratory_is_wrong_more_often(name: str) -> None:
    rate = replace(RATES[name], kind="error")
    assert not rate.holds(rate.simulated(DRAWS)[0], DRAWS)
