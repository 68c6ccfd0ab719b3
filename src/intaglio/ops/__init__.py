"""All operations, one block each. Import an op by name: `from intaglio.ops import conv, relu`."""

from intaglio.ops.activation import *  # noqa: F403
from intaglio.ops.attention import *  # noqa: F403
from intaglio.ops.cast import *  # noqa: F403
from intaglio.ops.compare import *  # noqa: F403
from intaglio.ops.control import *  # noqa: F403
from intaglio.ops.conv import *  # noqa: F403
from intaglio.ops.deform_conv import *  # noqa: F403
from intaglio.ops.depth_to_space import *  # noqa: F403
from intaglio.ops.detect import *  # noqa: F403
from intaglio.ops.dynamic_matmul import *  # noqa: F403
from intaglio.ops.dynamic_quantize import *  # noqa: F403
from intaglio.ops.dynamic_recurrent import *  # noqa: F403
from intaglio.ops.dynamic_shape import *  # noqa: F403
from intaglio.ops.einsum import *  # noqa: F403
from intaglio.ops.elementwise import *  # noqa: F403
from intaglio.ops.glu import *  # noqa: F403
from intaglio.ops.grid_sample import *  # noqa: F403
from intaglio.ops.index import *  # noqa: F403
from intaglio.ops.integer_conv import *  # noqa: F403
from intaglio.ops.linear import *  # noqa: F403
from intaglio.ops.normalize import *  # noqa: F403
from intaglio.ops.pool import *  # noqa: F403
from intaglio.ops.quantize import *  # noqa: F403
from intaglio.ops.quantized import *  # noqa: F403
from intaglio.ops.quantized_lowering import *  # noqa: F403
from intaglio.ops.recurrent import *  # noqa: F403
from intaglio.ops.reduce import *  # noqa: F403
from intaglio.ops.registry import REGISTRY as REGISTRY
from intaglio.ops.resize import *  # noqa: F403
from intaglio.ops.shape import *  # noqa: F403
from intaglio.ops.signal import *  # noqa: F403
