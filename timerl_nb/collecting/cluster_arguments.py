"""Arguments of `trl.collect` for a Ray cluster."""

from __future__ import annotations

from timerl_nb.base.errors import OptionError
from timerl_nb.collecting.strategy_list import CLUSTER_STRATEGIES
from timerl_nb.collecting.strategy_selection import ANY, AUTO
from timerl_nb.compiler.language.argument_checks import integer


def uses_cluster(how: str, cluster: str | None) -> bool:
    """Return whether workers of Ray may collect.

    Raises:
        OptionError: the cluster is of another kind, or contradicts the strategy.
    """
    if cluster not in (None, "ray"):
        raise OptionError(
            f"cluster={cluster!r} is not supported.",
            hint='pass cluster="ray". The address of a cluster is an argument of ray.init.',
        )
    names = [strategy.name for strategy in CLUSTER_STRATEGIES]
    if cluster is not None and how not in (AUTO, ANY, *names):
        raise OptionError(
            f'cluster="ray" allows "auto" and "any" to select workers of Ray, but how={how!r}.',
            hint='pass how="ray", or leave out cluster.',
        )
    return cluster is not None or how in names


def check_workers(workers: int | None, how: str, envs: int, *, is_clustered: bool) -> int | None:
    """Return the number of workers after a check; None for one per CPU of the cluster.

    Raises:
        OptionError: there is no cluster, or fewer environments than workers.
    """
    if workers is None:
        return None
    count = integer("workers, the number of Ray workers,", workers, least=1)
    if not is_clustered:
        raise OptionError(
            f"workers={count} are workers of Ray, but how={how!r} does not use them.",
            hint='pass how="ray", or cluster="ray" with how="auto"; or leave out workers.',
        )
    if count > envs:
        raise OptionError(
            f"workers={count}, but there are {envs} environments, and each worker needs at least one.",
            hint=f"pass workers={envs} or fewer.",
        )
    return count
