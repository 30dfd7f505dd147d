"""What each kind of picture shows, for who cannot see it."""

TEXTS = {
    "attention": (
        "Attention of the class token to the patches of an image, for each head and as the mean"
        " over heads: weights after the softmax, each map from its smallest to its largest."
    ),
    "attention of classes": (
        "Attention of each class's own token to the patches of an image: weights after the softmax,"
        " the mean over heads, each map from its smallest to its largest."
    ),
    "cam": (
        "Gradient-weighted class activation maps (Selvaraju et al. 2017): where the features raise"
        " the logit of a class, each map from zero to its largest value."
    ),
    "relations": (
        "What the auxiliary head predicts of each patch relative to the marked one, beside what is"
        " true."
    ),
    "features": (
        "Features of images, each of length 1, as points of a plane (t-SNE): images with similar"
        " features lie near each other. Colours: classes. Distances between groups mean nothing."
    ),
    "neighbours": (
        "Images, each with the training images whose features have the largest cosine with its own,"
        " the nearest first. Green frame: the image's class; orange frame: another class."
    ),
    "depth": (
        "What each block adds to the tokens that go through it: norm of what attention and the MLP"
        " add, divided by the norm of what they add to, as a mean over tokens and images."
    ),
    "masks": (
        "Masks beside what the network predicts, a colour for each class and the darkest for no"
        " class, and the pixels where the two differ. Of a run on objects: these beside those that"
        " the network finds with a score of 0.5 or more."
    ),
    "filters": (
        "Rows of the matrix that mixes patches, a line of images for each block: how much of each"
        " patch goes into one. The middle colour is zero."
    ),
}
